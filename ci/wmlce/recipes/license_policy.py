"""Which licences the channel's packages may have: license_policy.yaml. Those of the libraries inside wheels
come from third_party.yaml.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import yaml
from license_expression import ExpressionError, Licensing
from pydantic import BaseModel, ConfigDict

from wmlce.recipes import third_party
from wmlce.recipes.licenses import canonical
from wmlce.recipes.third_party import bundled

__all__ = ["Judgement", "Policy", "bundled", "judge", "policy"]

FILE = "ci/wmlce/recipes/license_policy.yaml"


class Policy(BaseModel):
    """license_policy.yaml.

    bundled: libraries in the folders NAME.libs of wheels -> licence, of third_party.yaml
    """

    model_config = ConfigDict(extra="forbid")
    allowed: frozenset[str]
    conditional: dict[str, str]
    refused: dict[str, str]
    bundled: dict[str, str] = {}


class Judgement(BaseModel):
    """The judgement on a licence expression: why it is refused, or under which conditions it is allowed."""

    problems: list[str] = []
    conditions: list[str] = []


@cache
def policy() -> Policy:
    """The policy that is shipped with the tool."""
    text = (files("wmlce.recipes") / "license_policy.yaml").read_text()
    table = third_party.declared()
    inside = {library: table.projects[project].license for library, project in table.libraries.items()}
    return Policy.model_validate({**yaml.safe_load(text), "bundled": inside})


def judge(expression: str, by: Policy | None = None) -> Judgement:
    """An expression by the policy: all of an AND, and one of an OR, has to be allowed."""
    stated = canonical(expression)
    if stated is None:
        return Judgement(problems=[f"its licence is not an SPDX expression: {expression}"])
    try:
        return _judge(Licensing().parse(stated, simple=True), by or policy())
    except ExpressionError as error:
        return Judgement(problems=[f"its licence cannot be understood: {expression}: {error}"])


def _judge(part: Any, by: Policy) -> Judgement:
    kind = type(part).__name__
    if kind == "AND":
        verdicts = [_judge(operand, by) for operand in part.args]
        return Judgement(
            problems=[text for verdict in verdicts for text in verdict.problems],
            conditions=list(dict.fromkeys(text for verdict in verdicts for text in verdict.conditions)),
        )
    if kind == "OR":
        verdicts = sorted(
            (_judge(operand, by) for operand in part.args),
            key=lambda verdict: (verdict.problems, verdict.conditions),
        )
        return next((verdict for verdict in verdicts if not verdict.problems), verdicts[-1])
    name = str(part.key if kind == "LicenseSymbol" else part.render())
    if name in by.allowed:
        return Judgement()
    if name in by.conditional:
        return Judgement(conditions=[f"{name}: {by.conditional[name]}"])
    if name in by.refused:
        return Judgement(problems=[f"{name} is refused: {by.refused[name]}"])
    return Judgement(problems=[f"the licence {name} is unknown: declare it in {FILE}"])
