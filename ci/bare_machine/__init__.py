"""Runs the project's own commands in minimal Debian systems that are made for it and thrown away afterwards.

mmdebstrap makes a system, and unshare and setpriv enter it; what is here beside them is the trials, the
machine's settings for them, and what makes other distributions special.

It needs nothing but Python's standard library, git, mmdebstrap and util-linux: it has to work before the tool
environment exists.
"""
