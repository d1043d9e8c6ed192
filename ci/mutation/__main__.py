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

from mutation.run import Outcome, Target, try_target

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).parent


def targets() -> dict[str, Target]:
    """Reads targets.toml."""
    result = {}
    for name, entry in tomllib.loads((FOLDER / "targets.toml").read_text()).items():
        files = sorted(path for pattern in entry["files"] for path in ROOT.glob(pattern))
        result[name] = Target(name, tuple(files), tuple(ROOT / path for path in entry["tests"]))
    return result


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("ci/mutate", description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="of targets.toml; default: all")
    parser.add_argument("--sample", type=int, metavar="N", help="draw so many mutants of each target")
    parser.add_argument("--seed", type=int, default=0, help="of the draw; default: 0")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the result as JSON")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    by_name = targets()
    if unknown := set(options.targets) - by_name.keys():
        print(
            f"ci/mutate: no target {', '.join(sorted(unknown))}; there are {', '.join(by_name)}",
            file=sys.stderr,
        )
        return 2
    result = {}
    for name in options.targets or by_name:
        outcomes = try_target(by_name[name], sample=options.sample, seed=options.seed, on_outcome=_show)
        killed = sum(outcome.killed for outcome in outcomes)
        print(
            f"{name}: {killed} of {len(outcomes)} mutants killed, {killed / max(1, len(outcomes)):.0%}",
            flush=True,
        )
        result[name] = {
            "mutants": len(outcomes),
            "killed": killed,
            "survivors": [_entry(outcome) for outcome in outcomes if not outcome.killed],
        }
    if options.output:
        options.output.write_text(json.dumps(result, indent=1) + "\n")
    return 0


def _entry(outcome: Outcome) -> str:
    return f"{outcome.file.relative_to(ROOT)}:{outcome.mutant.line}: {outcome.mutant.description}"


def _show(outcome: Outcome) -> None:
    if not outcome.killed:
        print(f"  survived: {_entry(outcome)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
