"""``python -m ddlrun``: ddlrun where its script is not installed."""

import sys

from .cli import main

sys.exit(main(sys.argv[1:]))
