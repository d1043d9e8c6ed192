"""The command behind ci/bench, which installs the peers and explains the options."""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import time
from pathlib import Path
from typing import Any

from rich.table import Table

from ddl_validate.allreduce.cpu_share import parse_share, slowed
from ddl_validate.allreduce.errors import BenchError, PeerMissing
from ddl_validate.allreduce.peers import Ddl, Peer
from ddl_validate.allreduce.prefixes import find_peers, parse_prefixes
from ddl_validate.allreduce.programs import default_cache
from ddl_validate.allreduce.sizes import show_seconds, show_size
from ddl_validate.cluster import missing_requirements
from ddl_validate.common import machine
from ddl_validate.common.console import output_console
from ddl_validate.common.files import identity, write_atomic
from ddl_validate.common.measured import ROOT, commit_of, source_hash
from ddl_validate.common.signals import end_on_sigterm

from . import page, record
from .measure import PEERS as OTHERS
from .measure import ROUNDS, Bench, Measured
from .targets import CPU_RATIO, LAYOUTS, OVER_BOUND, RATIO, Layout, layout, verdict

OK, WORSE, USAGE, INCOMPLETE = 0, 1, 2, 3
_MINUTES = 9.5
_SAY_SECONDS = 5.0
# Other work on the machine, in processes that want a core, from which the figures mean little.
_BUSY = 0.5


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ci/bench", description=__doc__)
    add = parser.add_argument
    add("--layout", action="append", default=[], metavar="NAME")
    add("--cpu-share", default="1", metavar="SHARE")
    add("--compare", action="store_true")
    add("--record", action="store_true")
    add("--page", action="store_true")
    add("--again", action="store_true")
    add("--minutes", type=float, default=_MINUTES)
    add("--prefix", action="append", default=[], metavar="PEER=DIR")
    add("--output", type=Path, default=ROOT / "build" / "bench")
    return parser


class Progress:
    """Every line goes to a log; the terminal gets one every few seconds, so that somebody sees it at work."""

    def __init__(self, log: Path) -> None:
        self._log, self._began, self._last = log, time.monotonic(), 0.0
        log.parent.mkdir(parents=True, exist_ok=True)

    def line(self, text: str) -> None:
        now = time.monotonic() - self._began
        print(f"[{int(now // 60):2d}:{int(now % 60):02d}] {text}", flush=True)
        self._keep(text)
        self._last = time.monotonic()

    def __call__(self, text: str) -> None:
        if time.monotonic() - self._last >= _SAY_SECONDS:
            self.line("  … " + text.splitlines()[0])
        else:
            self._keep(text)

    def _keep(self, text: str) -> None:
        with self._log.open("a") as log:
            print(text, file=log)


def _layouts(names: list[str], full: bool) -> list[Layout]:
    """What is to be measured here. full: all or nothing."""
    chosen = [layout(name) for name in names] or list(LAYOUTS.values())
    reasons = missing_requirements() if any(layout.emulated for layout in chosen) else []
    if not reasons:
        return chosen
    why = "; ".join(reasons)
    if names or full:
        emulated = ", ".join(layout.name for layout in chosen if layout.emulated)
        raise BenchError(f"{emulated}: no hosts can be emulated here: {why}; run ci/bench as root")
    print(f"ci/bench: no hosts can be emulated here: {why}; run as root for all layouts. Now one host alone.")
    return [layout for layout in chosen if not layout.emulated]


class Results:
    """What was measured of each layout, kept in a folder until something that the times depend on changes."""

    def __init__(self, folder: Path, key: dict[str, Any]) -> None:
        self._folder, self._key = folder, key

    def _path(self, layout: Layout) -> Path:
        return self._folder / f"{layout.name}.json"

    def get(self, layout: Layout) -> dict[str, Any] | None:
        try:
            document = json.loads(self._path(layout).read_text())
        except (OSError, ValueError):
            return None
        if not isinstance(document, dict) or document.get("identity") != self._identity(layout):
            return None
        return document if len(document["cells"]) == len(layout.sizes) and not document["wrong"] else None

    def put(self, layout: Layout, measured: Measured) -> dict[str, Any]:
        document = {
            "identity": self._identity(layout),
            "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            **vars(measured),
        }
        write_atomic(self._path(layout), json.dumps(document, indent=1))
        return document

    def _identity(self, layout: Layout) -> str:
        return identity(self._key, layout.scenario.as_json(), layout.sizes, layout.without)


def _installed(peers: list[Peer], missing: dict[str, str]) -> dict[str, str]:
    """A text for each peer that changes with what is installed; those that cannot run become missing."""
    installed = {}
    for peer in peers:
        try:
            installed[peer.name] = peer.prepare()
        except PeerMissing as error:
            missing[peer.name] = str(error)
    return installed


def _document(
    results: dict[str, dict[str, Any]], facts: dict[str, Any], cpu_share: dict[str, Any]
) -> dict[str, Any]:
    """A run as it is recorded: no names and no paths of the machine."""
    commit, dirty = commit_of(record.SOURCES)
    cells = [cell for result in results.values() for cell in result["cells"]]
    for cell in cells:
        # targets are those of today, also of a layout that was measured before they changed
        cell["targets"] = LAYOUTS[cell["layout"]].judged(cell["bytes"], cell)
    peers: dict[str, dict[str, Any]] = {}
    for result in results.values():
        for name, peer in result["peers"].items():
            description = {word: peer[word] for word in ("title", "available", "version") if word in peer}
            earlier = peers.get(name)
            peers[name] = (earlier or {}) | description if peer["available"] else earlier or description
    return {
        "kind": record.KIND,
        "schema": record.SCHEMA,
        "time": max((result["time"] for result in results.values()), default=""),
        "commit": commit,
        "dirty": dirty,
        "sources": source_hash(record.SOURCES),
        "machine": {word: facts[word] for word in ("processor", "cores", "memory", "system", "load")},
        "cpu_share": {name: cpu_share[name] for name in ("share", "method")},
        "told": "nothing",
        "rounds": ROUNDS,
        "peers": peers,
        "untried": {name: result["untried"] for name, result in results.items() if result["untried"]},
        "without": {name: LAYOUTS[name].without for name in results if LAYOUTS[name].without},
        "cells": cells,
    }


def _show(run: dict[str, Any]) -> None:
    table = Table("layout", "buffer", "DDL", "over the\nlower bound", "best peer")
    table.add_column("DDL against it\n(target)", justify="right")
    table.add_column("processor time\nagainst it (target)", justify="right")
    for cell in run["cells"]:
        peer = cell["peer"]
        table.add_row(
            cell["layout"],
            show_size(cell["bytes"]),
            show_seconds(cell["ddl"]["seconds"]),
            _judged(cell, OVER_BOUND),
            f"{peer['name']}, {peer['setting']}: {show_seconds(peer['seconds'])}" if peer else "-",
            _judged(cell, RATIO),
            _judged(cell, CPU_RATIO),
        )
    output_console().print(table)
    print(verdict(run["cells"]))


def _judged(cell: dict[str, Any], name: str) -> str:
    value, target = cell[name], cell["targets"].get(name)
    if value is None:
        return "-"
    if target is None:
        return f"{value:.2f}"
    return f"[{'green' if target['met'] else 'red'}]{value:.2f} ({target['limit']:g})[/]"


def _compared(run: dict[str, Any], layouts: list[Layout], ends: bool) -> int:
    """Compare with the record of this kind of machine. ends: a run that cannot be compared has failed."""
    path = record.FOLDER / record.file_name(run["machine"], run["cpu_share"]["share"])
    if not path.exists():
        print(f"No run is recorded for this kind of machine ({path.name}): ci/bench --record.")
        return INCOMPLETE if ends else OK
    recorded = record.read(path)
    worse = record.compare(run, recorded, [layout.name for layout in layouts])
    for line in worse:
        print(f"worse than recorded at commit {recorded['commit']}: {line}")
    if not worse:
        print(f"Not worse than recorded at commit {recorded['commit']}, beside the peers of the same run.")
    return WORSE if worse and ends else OK


def _first(share: float, facts: dict[str, Any]) -> dict[str, list[tuple[str, str]]]:
    """The settings that were best when last recorded, by layout."""
    path = record.FOLDER / record.file_name(facts, share)
    settings: dict[str, list[tuple[str, str]]] = {}
    for cell in record.read(path)["cells"] if path.exists() else []:
        if cell["peer"]:
            settings.setdefault(cell["layout"], []).append((cell["peer"]["name"], cell["peer"]["setting"]))
    return settings


def _measure_layouts(
    options: argparse.Namespace,
    layouts: list[Layout],
    bench: Bench,
    say: Progress,
    results: Results,
    missing: dict[str, str],
) -> dict[str, dict[str, Any]]:
    """Every layout's result by name, those measured before included."""
    measured: dict[str, dict[str, Any]] = {}
    # What a layout takes longer, the others have less of.
    part = options.minutes * 60 / sum(layout.minutes for layout in LAYOUTS.values())
    remaining = part * sum(layout.minutes for layout in layouts)
    for number, current in enumerate(layouts, 1):
        head = f"{number}/{len(layouts)} {current.title}"
        before = None if options.again else results.get(current)
        if before:
            measured[current.name] = before
            say.line(f"{head}: measured before ({before['time']}); --again measures it again")
            remaining -= part * current.minutes
            continue
        minutes = sum(other.minutes for other in layouts[number - 1 :])
        seconds = max(remaining, 0.0) * current.minutes / minutes
        say.line(f"{head}: about {seconds:.0f} s")
        start = time.monotonic()
        measured[current.name] = results.put(current, bench.run(current, dict(missing), seconds))
        took = time.monotonic() - start
        say.line(f"{head}: took {took:.0f} s")
        remaining -= took
    return measured


def _measure(options: argparse.Namespace) -> int:
    share = parse_share(options.cpu_share)
    prefixes = parse_prefixes(options.prefix)
    if options.record and options.layout:
        raise BenchError("--record needs all layouts: leave out --layout")
    layouts = _layouts(options.layout, options.record)
    cache = default_cache()
    peers, missing = find_peers([Ddl.name, *OTHERS], prefixes, cache)
    if Ddl.name in missing:
        raise BenchError(f"ddl: {missing[Ddl.name]}")
    for peer in peers:
        if isinstance(peer, Ddl):
            peer.describe_racks = False
    facts = machine.facts()
    if facts["load"] > _BUSY * facts["cores"]:
        print(f"ci/bench: the machine is busy (load {facts['load']:.1f}): the figures mean little.")
    folder = options.output / f"share-{share:g}"
    say = Progress(folder / "log.txt")
    key = {
        "installed": _installed(peers, missing),
        "sources": source_hash(record.SOURCES),
        "machine": record.file_name(facts, share),
        "minutes": options.minutes,
    }
    results = Results(folder, key)
    with slowed(share, "auto", cache) as (way, explained):
        bench = Bench(peers, folder / "cells", say, way, _first(share, facts))
        measured = _measure_layouts(options, layouts, bench, say, results, missing)
    run = _document(measured, facts, explained)
    write_atomic(folder / "run.json", json.dumps(run, indent=1))
    _show(run)
    failures = [line for result in measured.values() for line in result["failures"]]
    for line in failures:
        print(f"not measured: {line}")
    if any(result["wrong"] for result in measured.values()):
        print("ci/bench: A SUM WAS WRONG, see above", file=sys.stderr)
        return WORSE
    code = _compared(run, layouts, options.compare)
    if options.record and code != WORSE:
        lacking = record.lacking(run)
        if lacking or missing:
            raise BenchError(f"not recorded, as this was not measured: {'; '.join([*lacking, *missing])}")
        print(f"recorded: {record.write(run)}")
        page.rewrite()
    return code or (INCOMPLETE if missing or any(not result["cells"] for result in measured.values()) else OK)


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    end_on_sigterm()
    try:
        if options.page:
            print(f"{page.PAGE.name}: {'brought up to date' if page.rewrite() else 'is up to date'}")
            return OK
        return _measure(options)
    except BenchError as error:
        print(f"ci/bench: {error}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        print("ci/bench: stopped; the same command continues with the layout it was at", file=sys.stderr)
        return 130
