"""`ci/mutate`: how many small mistakes the quick tests see.

For each target of ci/mutation/targets.toml mutants are made of its files, and its tests run on each. A mutant
that no test sees is a line that nothing holds: write the missing test.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from mutation import cpp_run, record, run
from mutation.run import ROOT, Outcome, Target

FOLDER = Path(__file__).parent


def targets() -> dict[str, Target]:
    """Reads targets.toml."""
    result = {}
    for name, entry in tomllib.loads((FOLDER / "targets.toml").read_text()).items():
        files = sorted(path for pattern in entry["files"] for path in ROOT.glob(pattern))
        tests = [str(ROOT / test) if test.endswith(".py") else test for test in entry["tests"]]
        result[name] = Target(name, tuple(files), tuple(tests), entry.get("equivalent", {}))
    return result


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("ci/mutate", description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="of targets.toml; default: all")
    parser.add_argument("--sample", type=int, metavar="N", help="draw so many mutants of each target")
    parser.add_argument("--seed", type=int, default=0, help="of the draw; default: 0")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the result as JSON")
    parser.add_argument(
        "--record", action="store_true", help="write the result into ci/mutation/scores.json and the page"
    )
    parser.add_argument(
        "--page", action="store_true", help="only write the table of docs/develop/testing.md again"
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    if options.page:
        record.PAGE.write_text(record.page_text())
        return 0
    by_name = targets()
    if unknown := set(options.targets) - by_name.keys():
        print(
            f"ci/mutate: no target {', '.join(sorted(unknown))}; there are {', '.join(by_name)}",
            file=sys.stderr,
        )
        return 2
    commit = record.commit()
    entries = {}
    # those in C++ last, as they import the parts of wmlce that enter the build root
    for name in sorted(options.targets or by_name, key=lambda name: _is_cpp(by_name[name])):
        target = by_name[name]
        try_target = cpp_run.try_target if _is_cpp(target) else run.try_target
        result = try_target(target, sample=options.sample, seed=options.seed, on_outcome=_show)
        entry = entries[name] = record.entry_of(result, commit, options.sample, options.seed)
        print(
            f"{name}: {entry['killed']} of {len(result.outcomes)} mutants killed, {record.score(entry):.0%}",
            flush=True,
        )
        if options.record:  # after each target: a long run that stops leaves what it has
            record.write({**record.read(), name: entry})
            record.PAGE.write_text(record.page_text())
    if options.output:
        options.output.write_text(json.dumps(entries, indent=1) + "\n")
    return 0


def _is_cpp(target: Target) -> bool:
    return target.files[0].suffix == ".cpp"


def _show(outcome: Outcome) -> None:
    if not outcome.killed:
        print(f"  survived: {record.text_of(outcome)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
