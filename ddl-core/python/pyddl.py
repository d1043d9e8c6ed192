"""The module `pyddl` of IBM's DDL, by its name: see `ddl.pyddl`."""

from ddl.pyddl import *  # noqa: F403
