"""`ddlrun -simulate`: predictions for a described cluster. Nothing is started, no host is asked."""

from __future__ import annotations

import json
import math
import os
import re
from pathlib import Path
from typing import Any

from ..command_line.options import Options, usage
from ..errors import Code, LaunchError
from ..plain_text import plain

#: Of ddl.predict.
Result = dict[str, Any]


def run(options: Options) -> int:
    """Predict and print. Raises LaunchError."""
    _check(options)
    prediction = _library()
    if options.simulate == "list":
        _print_shipped(prediction)
        return 0
    ranks = None if options.ranks in (None, "all") else parse_ranks(str(options.ranks))
    result = _predict(prediction, options, ranks or [])
    if options.ranks == "all":
        result = _predict(prediction, options, full_hosts(result["cluster"]["host_ranks"]))
    if options.picture:
        from .simulate_diagram import svg

        try:
            Path(options.picture).write_text(svg(result), "utf-8")
        except OSError as error:
            raise LaunchError(
                Code.FOLDER,
                f"the picture cannot be written: {error.strerror}",
                f"in {options.picture}",
                "give -picture a file in a folder that can be written to",
            ) from None
    print(json.dumps(result, indent=1) if options.json else text(result), end="\n" if options.json else "")
    return 0


def _check(options: Options) -> None:
    if not options.simulate:
        stray = [
            name for name in ("bytes", "ranks", "calibrate", "picture") if getattr(options, name) is not None
        ]
        raise usage(
            f"{' and '.join(f'-{name}' for name in stray)} only go with -simulate",
            "name a described cluster: `ddlrun -simulate summit -bytes 100MB`",
        )
    if options.program:
        raise usage(
            f"-simulate starts no program, but {options.program[0]!r} is given",
            "leave the program out; options stand before it",
        )


def parse_ranks(text: str) -> list[int]:
    """`1,2,4`, in ascending order. Raises LaunchError (USAGE)."""
    counts = set()
    for word in text.split(","):
        if not re.fullmatch(r"[0-9]{1,9}", word) or int(word) < 1:
            raise usage(
                f"-ranks {text!r}: {word!r} is not a whole number of at least 1",
                "write `-ranks 1,2,4` or `-ranks all`",
            )
        counts.add(int(word))
    return sorted(counts)


def full_hosts(host_ranks: list[int]) -> list[int]:
    """Every number of ranks on the first host, then every number of full hosts."""
    counts = list(range(1, host_ranks[0] + 1))
    for more in host_ranks[1:]:
        counts.append(counts[-1] + more)
    return counts


def _library() -> Any:
    try:
        # The native library is loaded here and nowhere else in ddlrun. MPI is linked to it, but not started,
        # even where a launcher's variables describe a rank.
        os.environ["DDL_AUTO_INIT"] = "0"
        from ddl import _prediction
    except ImportError as error:
        raise LaunchError(
            Code.DDL,
            f"DDL's library cannot be loaded: {error}",
            "in the environment of ddlrun",
            "install the package ddl there again",
        ) from None
    return _prediction


def _predict(prediction: Any, options: Options, ranks: list[int]) -> Result:
    try:
        result: Result = prediction.predict(options.simulate, options.bytes or 0, ranks, options.calibrate)
    except prediction.DDLError as error:
        raise _explained(str(error), options) from None
    return result


def _explained(message: str, options: Options) -> LaunchError:
    """The library's `[ERROR DDL-1-1] what; in …; remedy` with the name of the file."""
    problem, _, rest = message.partition("] ")[2].partition("; in ")
    where, _, remedy = rest.partition("; ")
    where = where.replace("the cluster description", f"cluster description {options.simulate}", 1)
    where = where.replace("the step times", f"step times {options.calibrate}", 1)
    where = where.replace("the call", "-ranks", 1)
    return LaunchError(Code.DESCRIPTION, problem, f"in {where}", remedy)


def _print_shipped(prediction: Any) -> None:
    for title, shipped in (
        ("clusters, for -simulate", prediction.shipped_clusters()),
        ("step times, for -calibrate", prediction.shipped_steps()),
    ):
        print(f"{title}:")
        for name, path in shipped.items():
            print(f"  {name:<22}{json.loads(path.read_text('utf-8'))['description']}")


def seconds(value: float) -> str:
    """Three digits and a unit."""
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "us")):
        if value * factor >= 0.9995 or unit == "us":
            scaled = value * factor
            digits = max(0, 2 - math.floor(math.log10(scaled))) if scaled > 0 else 0
            return f"{scaled:.{min(digits, 2)}f} {unit}"
    raise AssertionError


def size(value: int) -> str:
    for factor, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= factor:
            return f"{value / factor:.4g} {unit}"
    return f"{value} bytes"


def text(result: Result) -> str:
    """The tables."""
    cluster = result["cluster"]
    step = f", a step of one rank takes {seconds(result['step_s'])}" if result["step_s"] is not None else ""
    title = ": ".join(plain(part) for part in (cluster["name"], cluster["description"]) if part)
    lines = [title or "a cluster", f"all-reduce of {size(result['bytes'])}{step}"]
    lines += _calibration(result["calibration"])
    by_algorithm: dict[str, list[Result]] = {}
    for row in result["predictions"]:
        by_algorithm.setdefault(row["algorithm"], []).append(row)
    for algorithm, rows in by_algorithm.items():
        lines += ["", f"{algorithm}: {result['algorithms'][algorithm]}"]
        lines.append(f"{'ranks':>8}{'hosts':>8}{'all-reduce':>12}{'step':>10}{'efficiency':>12}  bound by")
        for row in rows:
            has_step = row["efficiency"] is not None
            step_time = seconds(row["step_s"]) if has_step else "-"
            efficiency = format(row["efficiency"], ".1%") if has_step else "-"
            lines.append(
                f"{row['ranks']:>8}{row['hosts']:>8}{seconds(row['allreduce_s']):>12}"
                f"{step_time:>10}{efficiency:>12}  {plain(row['bound_by'] or '-')}"
            )
    return "\n".join([*lines, ""])


def _calibration(calibration: Result | None) -> list[str]:
    if calibration is None:
        return []
    parts = [
        f"{name} reach {calibration[key]:.1%}"
        for name, key in (
            ("links inside a host", "inside_efficiency"),
            ("links between hosts", "network_efficiency"),
        )
        if calibration[key] is not None
    ]
    lines = [
        f"calibrated: {' and '.join(parts)} of their bandwidth"
        if parts
        else "calibrated: the step of one rank"
    ]
    lines.append(f"{'ranks':>8}{'measured':>12}{'predicted':>12}{'off':>8}")
    for step in calibration["steps"]:
        lines.append(
            f"{step['ranks']:>8}{seconds(step['measured_s']):>12}{seconds(step['predicted_s']):>12}"
            f"{step['off']:>+8.1%}{'  fitted' if step['fitted'] else ''}"
        )
    return lines
