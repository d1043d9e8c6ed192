"""Runs a command that may make no user namespaces, as in a container whose runtime forbids them by seccomp.

python3 deny_namespaces.py COMMAND...
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys

# <linux/prctl.h>, <linux/seccomp.h>, <linux/bpf_common.h>, <linux/sched.h>; numbers of calls on x86-64
_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER = 38, 22, 2
_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_CLONE, _UNSHARE, _CLONE3 = 56, 272, 435
_NEW_USER = 0x10000000


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def deny() -> None:
    """For this process and all that it starts. clone3, whose flags no filter sees, is as if it were not
    there: the C library then calls clone.
    """
    steps = [
        (_LOAD, 0, 0, 0),  # the number of the call
        (_EQUAL, 5, 0, _CLONE3),
        (_EQUAL, 1, 0, _CLONE),
        (_EQUAL, 0, 4, _UNSHARE),
        (_LOAD, 0, 0, 16),  # the lower half of its first argument
        (_ANY_BIT, 0, 2, _NEW_USER),
        (_RETURN, 0, 0, _ERROR | errno.EPERM),
        (_RETURN, 0, 0, _ERROR | errno.ENOSYS),
        (_RETURN, 0, 0, _ALLOW),
    ]
    code = b"".join(struct.pack("HBBI", *step) for step in steps)
    program = _Program(len(steps), code)
    library = ctypes.CDLL(None, use_errno=True)
    for call in ((_NO_NEW_PRIVILEGES, 1, 0, 0, 0), (_SET_SECCOMP, _FILTER, ctypes.byref(program), 0, 0)):
        if library.prctl(*call) != 0:
            sys.exit(f"error: seccomp: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    deny()
    os.execvp(sys.argv[1], sys.argv[1:])
