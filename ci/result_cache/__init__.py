"""Results of tests, kept by a hash of everything that each test depends on.

A test whose inputs are those of an earlier pass is taken as passed.
docs/develop/testing.md says how to use it.
"""
