"""The page of a failure: what was found, when every rank was in which call, and its last calls."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from html import escape

from .records import Call, Finding, Record, reasons

#: Of the picture and of the tables; the records have all.
_LANES = 64
_TABLES = 64
_WIDTH, _LEFT, _LANE = 1000, 150, 18
#: Okabe and Ito's colours, which people of every colour vision tell apart.
_COLOURS = {
    "allreduce": "#0072b2",
    "broadcast": "#009e73",
    "barrier": "#999999",
    "reduce_scatter": "#56b4e9",
    "all_gather": "#cc79a7",
}
_OTHER, _STUCK = "#e69f00", "#d55e00"
_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:1060px;margin:2em auto;padding:0 1em;color:#222}
h1{font-size:1.5em}h2{font-size:1.15em;margin-top:2em}
li.stop{color:#a33c00;font-weight:600}li.stop ul{color:#222;font-weight:400}
table{border-collapse:collapse;width:100%;font-size:13px}
td,th{border-bottom:1px solid #ddd;padding:2px 8px;text-align:left;vertical-align:top}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
tr.running td,tr.failed td{background:#fbe9df}
.key span{display:inline-block;width:.9em;height:.9em;margin:0 .3em 0 1em;vertical-align:-1px}
summary{cursor:pointer;padding:2px 0}
"""


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S.%f")[:-3]


def _order(records: Sequence[Record], findings: Sequence[Finding]) -> list[Record]:
    """Ranks that did not come first: where there are too many, the others are left out."""
    named = {missing.rank for finding in findings for missing in finding.absent}
    return sorted(records, key=lambda record: (record.rank not in named, record.rank))


def _picture(records: Sequence[Record]) -> str:
    """When each rank was in which call, over the last calls, as SVG."""
    lanes = sorted(records[:_LANES], key=lambda record: record.rank)
    end = max(record.written for record in lanes)
    begun = [call.began for record in lanes for call in record.calls[-24:]]
    start = min(begun, default=end - 1)
    span = max(end - start, 1e-3)
    height = _LANE * len(lanes) + 40

    def across(at: float) -> float:
        return _LEFT + (min(max(at, start), end) - start) / span * (_WIDTH - _LEFT - 24)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-size="11" '
        'font-family="system-ui,sans-serif" role="img" aria-label="calls of every rank over time">'
    ]
    for tenth in range(0, 11, 2):
        at = start + span * tenth / 10
        parts.append(
            f'<path d="M{across(at):.1f} 0V{height - 36}" stroke="#ddd"/><text x="{across(at):.1f}" '
            f'y="{height - 22}" text-anchor="middle">{at - end:.1f} s</text>'
        )
    for lane, record in enumerate(lanes):
        y = lane * _LANE
        host = record.host if len(record.host) < 16 else record.host[:15] + "…"
        parts.append(f'<text x="0" y="{y + 13}">rank {record.rank} · {escape(host)}</text>')
        parts += [_bar(call, record, across, y) for call in record.calls if (call.ended or end) >= start]
    parts.append(
        f'<text x="{_LEFT}" y="{height - 6}">time before the last record was written, '
        f"{_clock(end)} UTC</text></svg>"
    )
    return "".join(parts)


def _bar(call: Call, record: Record, across: Callable[[float], float], y: int) -> str:
    left_x = across(call.began)
    right_x = max(across(call.ended if call.ended is not None else record.written), left_x + 1.5)
    colour = _COLOURS.get(call.kind, _OTHER) if call.state == "done" else _STUCK
    return (
        f'<rect x="{left_x:.1f}" y="{y + 3}" width="{right_x - left_x:.1f}" height="{_LANE - 6}" '
        f'fill="{colour}">'
        f"<title>call {call.number} of ranks {escape(call.group[0])}: {escape(call.text)} ({call.state})"
        "</title></rect>"
    )


def _table(record: Record) -> str:
    rows = []
    for call in reversed(record.calls):
        took = f"{(call.ended - call.began) * 1e3:.3f}" if call.ended is not None else "…"
        group = call.group[0] + (f" ({call.group[1]})" if call.group[1] > 1 else "")
        rows.append(
            f'<tr class="{escape(call.state)}"><td class="n">{call.number}</td><td>{escape(group)}</td>'
            f'<td>{escape(call.text)}</td><td class="n">{call.bytes:,}</td><td>{escape(call.state)}</td>'
            f'<td class="n">{_clock(call.began)}</td><td class="n">{took}</td></tr>'
        )
    last = record.calls[-1] if record.calls else None
    summary = f"last call {last.number}, {last.text}: {last.state}" if last else "no call"
    return (
        f"<details><summary>rank {record.rank}, host {escape(record.host)}: {escape(summary)}</summary>"
        '<table><tr><th class="n">call</th><th>of ranks</th><th>what</th><th class="n">bytes</th>'
        '<th>state</th><th class="n">began (UTC)</th><th class="n">ms</th></tr>'
        f"{''.join(rows)}</table></details>"
    )


def html(records: Sequence[Record], findings: Sequence[Finding], wrong: Sequence[str] = ()) -> str:
    """The page, complete in one file. records: at least one. wrong: files that are no records."""
    hosts = {record.rank: record.host for record in records}
    size = max(record.size for record in records)
    stops = "".join(
        f"<li class=stop>{escape(first)}<ul>{''.join(f'<li>{escape(text)}</li>' for text in rest)}</ul></li>"
        for first, *rest in (finding.sentences(hosts) for finding in findings)
    )
    if not stops:
        stops = "<li>No rank was in a call: the job did not stop inside DDL.</li>"
    causes = "".join(
        f"<li>{len(ranks)} rank{'s' if len(ranks) > 1 else ''}: {escape(text)}</li>"
        for text, ranks in reasons(records).items()
    )
    ordered = _order(records, findings)
    colours = "".join(
        f'<span style="background:{colour}"></span>{name}'
        for name, colour in (*_COLOURS.items(), ("other", _OTHER), ("not ended", _STUCK))
    )
    left_out = len(records) - _TABLES
    more = f"<p>{left_out} more ranks: see their files beside this page.</p>" if left_out > 0 else ""
    trouble = "".join(f"<li>{escape(text)}</li>" for text in wrong)
    return (
        '<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>DDL flight record</title>'
        f"<style>{_STYLE}</style><h1>DDL flight record: {len(records)} of {size} ranks</h1>"
        f"<h2>Where it stopped</h2><ul>{stops}</ul>"
        f"<h2>Why the records were written</h2><ul>{causes}</ul>"
        f'<h2>The last calls</h2><p class="key">{colours}</p>{_picture(ordered)}'
        f"<h2>By rank</h2>{''.join(_table(record) for record in ordered[:_TABLES])}{more}"
        + (f"<h2>Not readable</h2><ul>{trouble}</ul>" if trouble else "")
        + "</html>\n"
    )
