"""Runs the project's own commands in minimal Debian systems that are made for it and thrown away afterwards.

It needs nothing but Python's standard library, git, mmdebstrap and util-linux: it has to work before the tool
environment exists.
"""
