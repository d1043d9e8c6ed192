"""Licences as SPDX expressions, as far as somebody has stated them.

"BSD License" can be any of three, and two classifiers can mean both licences or either: where METADATA is not
clear, somebody has to read the licence and state it in recipes/wheels.yaml.
"""

from __future__ import annotations

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression


def canonical(expression: str) -> str | None:
    """The expression in SPDX's own spelling; None for what is no SPDX expression. LicenseRef-NAME is one."""
    try:
        return str(canonicalize_license_expression(expression))
    except InvalidLicenseExpression:
        return None


def stated_license(expression: str | None, text: str | None) -> str | None:
    """What METADATA's License-Expression says, or its older License line where that is an SPDX expression."""
    if expression:
        return canonical(expression)
    return canonical(text.strip()) if text and text.strip() else None
