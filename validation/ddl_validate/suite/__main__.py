"""`python -m ddl_validate.suite`, and of an environment `wmlce-validate`."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
