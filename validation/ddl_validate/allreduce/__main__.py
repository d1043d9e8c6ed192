"""``python -m ddl_validate.allreduce``, and the entry point of the command ``ddl-bench``."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
