"""Large Model Support: trains models whose activations do not fit into the memory of the device.

`lms.torch` and `lms.tensorflow` import their frameworks; this module imports neither.
"""

from __future__ import annotations

from lms._errors import HostMemoryError, LmsError
from lms._sizes import format_bytes, parse_bytes

__all__ = ["HostMemoryError", "LmsError", "format_bytes", "parse_bytes"]
