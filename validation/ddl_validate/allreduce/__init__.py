"""The all-reduce benchmark: DDL and its peers side by side, on emulated hosts or on a real cluster.

``python -m ddl_validate.allreduce --help``; installed, the command is ``ddl-bench``. The layers, each using
only those before it:

    errors, sizes, scenarios, bounds   what is measured, and what the links allow
    testbed                            where ranks run: this machine, emulated hosts, real hosts
    programs/, programs.py             the timing programs and how they are compiled
    peers/                             one file a peer: how it is started on N ranks
    launch                             one start of a peer: its events, its limits, its failures
    results, runner                    the matrix, kept cell by cell
    table, charts, cli                 what is shown, and the command
"""
