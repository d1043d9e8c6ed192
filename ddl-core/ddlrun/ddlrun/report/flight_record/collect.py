"""The records of a job, brought together on this host."""

import json
import secrets
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from ...checks.remote_probe import answer_of
from ...console import say
from ...environment import Environment
from ...errors import Code, LaunchError
from . import fetch, page
from .records import findings, parse_all, reasons

PAGE = "flight-record.html"
_HOST_SECONDS = 10.0
_PARALLEL = 64
_LINES = 12


def _from_host(host: str, environment: Environment, folder: Path, source: str) -> dict[str, str] | None:
    nonce = secrets.token_hex(8)
    try:
        arguments = [str(folder), nonce, "remove"]
        answer = answer_of(host, environment, source, arguments, nonce, _HOST_SECONDS)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    if not isinstance(answer, dict):
        return None
    return {str(name): str(text) for name, text in answer.items()}


def gather(
    folder: Path, into: Path, hosts: Sequence[str], environment: Environment, log: Callable[[str], None]
) -> list[str]:
    """Bring the records of all hosts to one folder of this host; the hosts that did not answer.

    folder: on every host. hosts: the job's, besides this one.
    """
    texts = fetch.records(str(folder))
    fetch.remove(str(folder))
    silent = []
    if hosts:
        source = Path(fetch.__file__).read_text()
        from concurrent.futures import ThreadPoolExecutor  # brings logging with it

        with ThreadPoolExecutor(min(_PARALLEL, len(hosts))) as pool:
            answers = pool.map(lambda host: _from_host(host, environment, folder, source), hosts)
            for host, answer in zip(hosts, answers, strict=True):
                if answer is None:
                    silent.append(host)
                texts |= answer or {}
    if texts:
        into.mkdir(exist_ok=True)
        for name in texts:
            # A host may send any name.
            if Path(name).name == name and name.startswith("rank-"):
                (into / name).write_text(texts[name])
    log(f"flight records of {len(texts)} ranks; no answer from {silent}")
    return silent


def tell(folder: Path) -> Path | None:
    """Make the page of the records in a folder and say in a few lines what is in it; None without records."""
    records, wrong = parse_all(fetch.records(str(folder)))
    if not records:
        return None
    stops = findings(records)
    page_path = folder / PAGE
    page_path.write_text(page.html(records, stops, wrong))
    hosts = {record.rank: record.host for record in records}
    lines = [text for finding in stops for text in finding.sentences(hosts)]
    for text in lines[:_LINES]:
        say(f"[DDL] flight record: {text}")
    say(
        f"[DDL] flight record: the last calls of {len(records)} of {records[0].size} ranks are in {page_path}"
    )
    return page_path


def show(folder: Path, as_json: bool) -> int:
    """Read the records in a folder, for somebody who collected them; the exit code."""
    records, wrong = parse_all(fetch.records(str(folder)))
    if not records:
        raise LaunchError(
            Code.FOLDER,
            "no flight records (rank-0.json, …)" + (f"; {wrong[0]}" if wrong else ""),
            f"in {folder}",
            f"name the folder that {fetch.VARIABLE} named, or a run folder's flight-record",
        )
    if not as_json:
        tell(folder)
        return 0
    data = {
        "ranks": records[0].size,
        "records": [record.rank for record in records],
        "reasons": reasons(records),
        "stops": [finding.as_data() for finding in findings(records)],
        "unreadable": wrong,
    }
    print(json.dumps(data, indent=1))
    return 0
