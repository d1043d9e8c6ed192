"""What the ranks' records say together: which ranks waited in which call, and who never entered it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

#: In a sentence; more are counted.
_NAMED = 8


@dataclass(frozen=True)
class Call:
    """A call of a rank. group: the ranks of its communicator, such as "0-3", and which of those that join the
    same ranks. number: in that communicator, from 1; 0: the making of it. began,
    ended: Unix time in seconds; ended None while it ran.
    """

    group: tuple[str, int]
    number: int
    kind: str
    text: str
    bytes: int
    state: str
    began: float
    ended: float | None


@dataclass(frozen=True)
class Record:
    """What one rank left. calls: oldest first, over all communicators. written: Unix time in seconds."""

    rank: int
    size: int
    host: str
    written: float
    reason: str
    calls: tuple[Call, ...]


@dataclass(frozen=True)
class Absent:
    """A rank that did not come to a call. last: what it came to before, in the same communicator."""

    rank: int
    host: str
    last: Call | None


@dataclass(frozen=True)
class Finding:
    """A call at which a communicator came to a stop. waiting: ranks that were in it. absent: that did not
    come, although they left a record. unrecorded: that left none. different: where the ranks made different
    calls, who made which. since: seconds for which the first of them had waited.
    """

    ranks: str
    instance: int
    number: int
    call: str
    since: float
    waiting: tuple[int, ...] = ()
    absent: tuple[Absent, ...] = ()
    unrecorded: tuple[int, ...] = ()
    different: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def sentences(self, hosts: Mapping[int, str]) -> list[str]:
        """In words. hosts: by rank, where they are known."""
        who, was = _count(self.waiting), "was" if len(self.waiting) == 1 else "were"
        at = f"call {self.number} of ranks {self.ranks}, {self.call}"
        if self.number == 0:
            at = f"{self.call} of ranks {self.ranks}"
        lines = [f"{who} {was} in {at}, for {self.since:.1f} s"]
        for text, ranks in self.different.items():
            lines.append(f"{_names(ranks, hosts)} made it as {text}")
        for missing in self.absent[:_NAMED]:
            name = _names((missing.rank,), hosts)
            if missing.last is None:
                nor = ", nor any other call of these ranks" if self.number > 0 else ""
                lines.append(f"{name} never entered it{nor}")
                continue
            last = missing.last
            state = {"running": "in which it still was", "failed": "which failed"}.get(last.state, "done")
            lines.append(f"{name} never entered it: its last was call {last.number}, {last.text}, {state}")
        if len(self.absent) > _NAMED:
            lines.append(f"{len(self.absent) - _NAMED} more ranks never entered it")
        if self.unrecorded:
            lines.append(
                f"{_names(self.unrecorded, hosts)} left no record: killed, or its host cannot be reached"
            )
        return lines

    def as_data(self) -> dict[str, Any]:
        return asdict(self)


def _count(ranks: Sequence[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"{len(ranks)} ranks"


def _names(ranks: Sequence[int], hosts: Mapping[int, str]) -> str:
    named = [f"{rank} (host {hosts[rank]})" if rank in hosts else str(rank) for rank in ranks[:_NAMED]]
    more = f" and {len(ranks) - _NAMED} more" if len(ranks) > _NAMED else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(named)}{more}"


def parse(text: str) -> Record:
    """A record as a rank wrote it. Raises ValueError where it is none, or of another format."""
    try:
        data = json.loads(text)
        if data["format"] != 1:
            raise ValueError(f"format {data['format']} is not known")
        groups = {
            int(number): (str(group["ranks"]), int(group["instance"]))
            for number, group in data["communicators"].items()
        }
        calls = tuple(
            Call(
                group=groups.get(int(call["communicator"]), ("", 0)),
                number=int(call["number"]),
                kind=str(call["kind"]),
                text=str(call["call"]),
                bytes=int(call["bytes"]),
                state=str(call["state"]),
                began=float(call["began"]),
                ended=None if call["ended"] is None else float(call["ended"]),
            )
            for call in data["calls"]
        )
        return Record(
            rank=int(data["rank"]),
            size=int(data["size"]),
            host=str(data["host"]),
            written=float(data["written"]),
            reason=str(data["reason"]),
            calls=calls,
        )
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
        raise ValueError(f"no flight record: {error!r}") from error


def parse_all(texts: Mapping[str, str]) -> tuple[list[Record], list[str]]:
    """Records by rank, and what is wrong with the others. texts: by file name."""
    records: dict[int, Record] = {}
    wrong = []
    for name, text in texts.items():
        try:
            record = parse(text)
        except ValueError as error:
            wrong.append(f"{name}: {error}")
            continue
        records[record.rank] = record
    return [records[rank] for rank in sorted(records)], wrong


def members(ranks: str) -> list[int]:
    """[0, 1, 2, 6] of "0-2,6"."""
    numbers: list[int] = []
    for part in filter(None, ranks.split(",")):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def findings(records: Sequence[Record]) -> list[Finding]:
    """Where the ranks stopped; the communicator whose ranks had waited longest comes first."""
    groups = sorted({call.group for record in records for call in record.calls if call.group[0]})
    stops = [stop for group in groups if (stop := _stop(group, records)) is not None]
    return sorted(stops, key=lambda finding: -finding.since)


def _stop(group: tuple[str, int], records: Sequence[Record]) -> Finding | None:
    belonging = members(group[0])
    last = {
        record.rank: next((call for call in reversed(record.calls) if call.group == group), None)
        for record in records
        if record.rank in set(belonging)
    }
    number = max(call.number for call in last.values() if call)
    inside = {rank: call for rank, call in last.items() if call and call.number == number}
    waiting = {rank: call for rank, call in inside.items() if call.state != "done"}
    if not waiting:
        return None
    by_text: dict[str, list[int]] = {}
    for rank, call in inside.items():
        by_text.setdefault(call.text, []).append(rank)
    hosts = {record.rank: record.host for record in records}
    written = {record.rank: record.written for record in records}
    majority = max(by_text.values(), key=len)
    return Finding(
        ranks=group[0],
        instance=group[1],
        number=number,
        call=inside[majority[0]].text,
        since=max((call.ended or written[rank]) - call.began for rank, call in waiting.items()),
        waiting=tuple(sorted(waiting)),
        absent=tuple(
            Absent(rank, hosts[rank], call)
            for rank, call in sorted(last.items())
            if call is None or call.number < number
        ),
        unrecorded=tuple(rank for rank in belonging if rank not in last),
        different={text: tuple(ranks) for text, ranks in by_text.items()} if len(by_text) > 1 else {},
    )


def reasons(records: Sequence[Record]) -> dict[str, list[int]]:
    """Why the records were written, and by which ranks; what most say comes first."""
    by_reason: dict[str, list[int]] = {}
    for record in records:
        by_reason.setdefault(record.reason, []).append(record.rank)
    return dict(sorted(by_reason.items(), key=lambda entry: -len(entry[1])))
