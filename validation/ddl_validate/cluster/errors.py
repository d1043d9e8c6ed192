"""The one exception of the package."""


class ClusterError(Exception):
    """An emulated cluster could not be described, started, used or removed; the text names what, where and
    why.
    """
