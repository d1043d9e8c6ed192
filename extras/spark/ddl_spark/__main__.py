"""`python -m ddl_spark`."""

import sys

from ddl_spark.cli import main

sys.exit(main())
