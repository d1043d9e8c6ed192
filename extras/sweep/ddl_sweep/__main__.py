"""`python -m ddl_sweep`."""

import sys

from .cli import main

sys.exit(main(sys.argv[1:]))
