"""What can go wrong, by what the benchmark does about it."""


class BenchError(Exception):
    """The command cannot be carried out; the text says what, where and the remedy."""


class PeerMissing(Exception):
    """A peer is not installed, or cannot be built here; the run goes on without it."""


class LaunchFailed(Exception):
    """A start of a peer gave no (further) result; the run goes on without the sizes that are missing.

    output: the last lines that the ranks wrote; the text shows some of them.
    """

    def __init__(self, reason: str, output: str = "") -> None:
        tail = "\n".join(f"  | {line}" for line in output.splitlines()[-12:])
        super().__init__(f"{reason}; its last lines:\n{tail}" if tail else reason)
        self.reason = reason
        self.output = output


class WrongSum(LaunchFailed):
    """A peer returned a sum that is not the sum."""
