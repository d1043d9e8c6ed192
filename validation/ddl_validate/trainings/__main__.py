"""`python -m ddl_validate.trainings`."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
