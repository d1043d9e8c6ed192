"""A program for every host, handed to its Python as text, so it imports the standard library only:

FOLDER NONCE [remove]   print the records in FOLDER as a JSON object (name: text) between marks; with
                        `remove` delete the folder afterwards
"""

import contextlib
import json
import os
import re
import stat
import sys

#: The folder in which the ranks of a host write; read by DDL when it is initialised.
VARIABLE = "DDL_FLIGHT_RECORDER"
_NAME = re.compile(r"rank-[0-9]{1,9}\.json")
#: 256 calls with the longest names take less.
_LARGEST = 1 << 20


def folder_on_hosts(job: str) -> str:
    """Where the ranks write if nobody says otherwise: a folder of each host, for this start alone."""
    return os.path.join(os.environ.get("TMPDIR") or "/tmp", f"ddl-flight-record.{job}")


def records(folder: str) -> dict[str, str]:
    """The texts of the records in a folder, by file name; of no folder none. Links are not followed."""
    texts: dict[str, str] = {}
    try:
        names = os.listdir(folder)
    except OSError:
        return texts
    for name in sorted(filter(_NAME.fullmatch, names)):
        with contextlib.suppress(OSError):
            file = os.open(os.path.join(folder, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(file, "rb") as opened:
                if stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                    texts[name] = opened.read(_LARGEST).decode(errors="replace")
    return texts


def remove(folder: str) -> None:
    """Delete the records, and the folder if nothing else is in it."""
    with contextlib.suppress(OSError):
        for name in filter(_NAME.fullmatch, os.listdir(folder)):
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(folder, name))
        os.rmdir(folder)


def main(argv: list[str]) -> int:
    folder, nonce, *rest = argv
    mark = f"@@ddlrun:{nonce}@@"
    print(f"\n{mark}{json.dumps(records(folder))}{mark}", flush=True)
    if rest == ["remove"]:
        remove(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
