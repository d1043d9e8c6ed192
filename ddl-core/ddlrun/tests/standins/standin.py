"""Stands in for the commands of schedulers that cannot run here: ranks are started by Open MPI's mpirun,
labelled and reported as `jsrun` and `flux run` do. Unknown options are refused.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

_MARK = re.compile(r"^\[[^\]]*,(\d+)\]<std(?:out|err)>: ?")
_SIGNAL = re.compile(r"process rank (\d+) with PID \d+ on node \S+ exited on signal (\d+)")
_CODE = re.compile(r"Process name: \[\S+,(\d+)\] Exit code: +(\d+)")


def parse(words: list[str], valued: set[str], flags: set[str]) -> tuple[dict[str, str], list[str]]:
    """Options and the program."""
    options: dict[str, str] = {}
    while words and words[0].startswith("-"):
        name, equals, value = words.pop(0).partition("=")
        if name in flags:
            options[name] = "1"
        elif name in valued:
            options[name] = f"{options.get(name, '')} {value if equals else words.pop(0)}".strip()
        else:
            sys.exit(f"stand-in: unknown option {name}")
    return options, words


def start(count: int, program: list[str]) -> tuple[int, tuple[int, int, bool] | None]:
    """Run the ranks; mpirun's code, and the rank that failed, its code or signal, and which of the two."""
    words = ["mpirun", "-n", str(count), "--map-by", ":OVERSUBSCRIBE", "--bind-to", "none", "--output", "tag"]
    child = subprocess.run([*words, *program], capture_output=True, text=True, check=False, timeout=240)
    said = " ".join(child.stderr.split())
    for text, stream in ((child.stdout, sys.stdout), (child.stderr, sys.stderr)):
        for line in text.splitlines():
            if found := _MARK.match(line):
                print(f"{found[1]}: {line[found.end() :]}", file=stream)
    for pattern, is_signal in ((_SIGNAL, True), (_CODE, False)):
        if found := pattern.search(said):
            return child.returncode, (int(found[1]), int(found[2]), is_signal)
    return child.returncode, None


def record(words: list[str]) -> None:
    if "STANDIN_RECORD" in os.environ:
        Path(os.environ["STANDIN_RECORD"]).write_text("\n".join(words))


def jsrun(words: list[str]) -> int:
    record(words)
    valued = {"--nrs", "--rs_per_host", "--tasks_per_rs", "--cpu_per_rs", "--gpu_per_rs", "--bind"}
    valued |= {"--exit_on_error", "--stdio_mode", "--stdio_input", "--launch_distribution", "--erf_input"}
    options, program = parse(words, valued, set())
    if "--erf_input" in options:
        count = Path(options["--erf_input"]).read_text().count("rank: ")
    else:
        count = int(options["--nrs"]) * int(options["--tasks_per_rs"])
    code, failed = start(count, program)
    if failed and failed[2]:
        which = f"(first noticed rank {failed[0]}) terminated with signal {failed[1]}"
        print(f"ERROR:  One or more process {which}", file=sys.stderr)
    return code


def flux(words: list[str]) -> int:
    resources = os.environ.get("FLUX_STANDIN_R")
    if words[0] == "run":
        return flux_run(words)
    if words in (["resource", "R"], ["job", "info", "fX", "R"]) and resources:
        print(resources)
        return 0
    print(f"flux-{words[0]}: ERROR: no R", file=sys.stderr)
    return 1


def flux_run(words: list[str]) -> int:
    record(words)
    options, program = parse(
        words[1:],
        {"-N", "--tasks-per-node", "-o", "--input", "--requires"},
        {"--exclusive", "--label-io"},
    )
    code, failed = start(int(options["-N"]) * int(options["--tasks-per-node"]), program)
    if failed:
        rank, number, is_signal = failed
        print(
            f"1.2s: flux-shell[0]: FATAL: doom: task rank {rank} on host h7 failed and exit-on-error is set",
            "flux-job: task(s) Killed" if is_signal else f"flux-job: task(s) exited with exit code {number}",
            sep="\n",
            file=sys.stderr,
        )
    return code
