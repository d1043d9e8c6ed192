"""Licences as SPDX expressions, as far as somebody has stated them.

"BSD License" can be any of three, and two classifiers can mean both licences or either: where METADATA is not
clear, somebody has to read the licence and state it in recipes/wheels.yaml.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from license_expression import Licensing
from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

from wmlce.util.errors import WmlceError

if TYPE_CHECKING:
    from rattler.repo_data.record import RepoDataRecord


def canonical(expression: str) -> str | None:
    """The expression in SPDX's own spelling; None if it is none. LicenseRef-NAME is one."""
    try:
        return str(canonicalize_license_expression(expression))
    except InvalidLicenseExpression:
        return None


def stated_license(expression: str | None, text: str | None) -> str | None:
    """What METADATA's License-Expression says, or its older License line where that is an SPDX expression."""
    if expression:
        return canonical(expression)
    return canonical(text.strip()) if text and text.strip() else None


def all_of(expressions: Iterable[str]) -> str:
    """The expression for a whole whose parts are under these, each licence once; parts whose licence is no
    expression are left out.
    """
    return " AND ".join(sorted({term for expression in expressions for term in terms(expression)}))


def unnamed(part: str, whole: str) -> list[str]:
    """Licences of a part that the expression of the whole lacks; of alternatives (OR) it may name one."""
    named = terms(whole)
    choices = {frozenset(alternatives) for alternatives in named.values()}
    return sorted(
        term
        for term, alternatives in terms(part).items()
        if not named.keys() & {term, *alternatives} and frozenset(alternatives or [term]) not in choices
    )


def terms(expression: str) -> dict[str, list[str]]:
    """Licences that an expression joins by AND -> the alternatives of each OR. Empty for no expression."""
    stated = canonical(expression)
    if stated is None:
        return {}
    parsed = Licensing().parse(stated, simple=True)
    by_term = {}
    for part in parsed.args if type(parsed).__name__ == "AND" else [parsed]:
        if type(part).__name__ == "OR":
            by_term[f"({part.render()})"] = [str(alternative.render()) for alternative in part.args]
        else:
            by_term[str(part.render())] = []
    return by_term


PROPRIETARY = "PROPRIETARY"
"""`license_family` of packages that may not be passed on. An index has it, so it holds for any channel."""
OPTION = "--proprietary"
"""Option of the commands that write files for others: include such packages."""


def refuse_proprietary(records: Iterable[RepoDataRecord], product: str) -> None:
    """An error where a file is to be written that others get, and some packages must not be in it.

    what: would be written
    """
    proprietary = sorted(
        f"{record.name.normalized} {record.version}: {record.license}"
        for record in records
        if (record.license_family or "").upper() == PROPRIETARY
    )
    if proprietary:
        packages = "package" if len(proprietary) == 1 else "packages"
        raise WmlceError(
            f"{product} would hold {len(proprietary)} {packages} whose licences do not let you pass them on",
            detail=proprietary,
            remedy="let the others build them from what they fetch themselves; if only your own site gets "
            f"the file, or the owner of the rights allows it: {OPTION}",
        )
