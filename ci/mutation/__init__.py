"""Mutation runs: small mistakes are made in the code, one at a time, and the tests should see each.

`mutants.py` makes them, `run.py` tries them on the tests of each target, `record.py` keeps the result, and
`targets.toml` says which tests belong to which files.
"""
