"""default_signals.py PROGRAM ARGUMENT…: the program, with the usual effect of SIGUSR1 and SIGUSR2.

Where mpirun's daemon of this host ignores them (see processes.py), its ranks would, too; and a shell
cannot take up a signal that was ignored when it began.
"""

import os
import signal
import sys

if __name__ == "__main__":
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # Python itself ignores the last two
    try:
        os.execvp(sys.argv[1], sys.argv[1:])
    except OSError as error:
        print(f"{sys.argv[1]}: {error.strerror}", file=sys.stderr)
        sys.exit(127)
