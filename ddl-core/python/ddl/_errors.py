"""The exception of the package; a module of its own, as the extension looks it up here."""

from __future__ import annotations


class DDLError(RuntimeError):
    """A failed DDL call.

    The text reads `[ERROR DDL-1-<code>] what; where; remedy`. After a mismatch between ranks, a time-out or
    the loss of a rank (codes 7, 8 and 9) every later collective call raises the same error.

    Attributes:
        code: The DDL_ERR_* number of ddl.h.
    """

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code

    def __reduce__(self) -> tuple[type[DDLError], tuple[str, int]]:
        # RuntimeError would pickle the text only.
        return type(self), (str(self), self.code)
