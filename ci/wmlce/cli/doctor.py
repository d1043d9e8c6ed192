"""`wmlce doctor`: is this machine ready?"""

from __future__ import annotations

from typing import Annotated

import typer

from wmlce.cli.session import Context, session_of
from wmlce.util.errors import WmlceError


def doctor_command(
    context: Context,
    network: Annotated[bool, typer.Option("--network/--no-network", help="Ask the archives too.")] = True,
) -> None:
    """Check compilers, disk, memory, archives and capabilities of this machine."""
    from rich.console import Console
    from rich.table import Table

    from wmlce import doctor

    session = session_of(context)
    findings = doctor.examine(session.layout, network=network, say=session.say)
    if session.as_json:
        session.answer({"findings": [finding.to_json() for finding in findings]}, "")
    else:
        table = Table("subject", "", "detail", "remedy")
        for finding in findings:
            table.add_row(finding.subject, finding.level, finding.detail, finding.remedy)
        Console(highlight=False).print(table)
    problems = [finding for finding in findings if finding.level == "problem"]
    if problems:
        raise WmlceError(
            f"this machine is not ready: {', '.join(finding.subject for finding in problems)}",
            detail=[f"{finding.subject}: {finding.detail}" for finding in problems],
            remedy="; ".join(finding.remedy for finding in problems if finding.remedy),
        )
