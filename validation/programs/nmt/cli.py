"""The command line."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import time
import traceback
from collections.abc import Sequence

from .corpus import open_corpus
from .errors import NmtError
from .options import parse

_RANK_0_FIRST_SECONDS = 3.0


def main(arguments: Sequence[str]) -> int:
    """Runs the program with these words; returns the exit code. What the user can mend is one line."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ["KERAS_BACKEND"] = "tensorflow"
    import ddl

    rank, size = ddl.rank(), ddl.size()
    try:
        # --help is the same on all ranks, and one prints it
        with contextlib.redirect_stdout(io.StringIO()) if rank else contextlib.nullcontext():
            options = parse(arguments)
        corpus = open_corpus(options.data, options.source, options.target, options.dev, options.test)
        # TensorFlow only now: --help and errors of the user need not wait for it.
        from .program import run as run_program

        run_program(options, corpus)
    except (NmtError, ddl.DDLError) as error:
        if rank:
            # Mostly all ranks find the same; when rank 0 has said it and left, the launcher ends the others.
            time.sleep(_RANK_0_FIRST_SECONDS)
        where = f"rank {rank}: " if rank else ""
        print(f"nmt: error: {where}{error}", file=sys.stderr, flush=True)
    except Exception:
        if size == 1:
            raise
        traceback.print_exc()
    else:
        return 0
    if size > 1:
        # An orderly exit would finalise MPI, and so wait for ranks that wait in a collective themselves.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)
    return 1


def run() -> None:
    """The entry point of the command `nmt`."""
    raise SystemExit(main(sys.argv[1:]))
