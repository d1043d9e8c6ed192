"""`python -m ddl_validate.gpu`: the command."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
