"""What a trial runs: a function, or a program with the parameters in its words. In a form that travels."""

from __future__ import annotations

import base64
import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from .errors import SweepError, required

#: What a task holds: {"program": words} or {"function": name, "pickle": text, "path": sys.path}.
Objective = dict[str, Any]
_FIELD = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


def takes_trial(train: Callable[..., Any]) -> bool:
    """Whether the first parameter of a function is called `trial`; else it takes the parameters by name."""
    first = next(iter(inspect.signature(train).parameters), None)
    return first == "trial"


def of_function(train: Callable[..., Any], names: Iterable[str]) -> Objective:
    """A function, pickled by value where its module is the script that runs.

    Raises:
        SweepError: It does not take the parameters, or cannot be pickled.
    """
    name = f"{getattr(train, '__module__', '')}.{getattr(train, '__qualname__', type(train).__name__)}"
    if not takes_trial(train):
        try:
            inspect.signature(train).bind(**dict.fromkeys(names))
        except TypeError as error:
            raise SweepError(
                f"{name}{inspect.signature(train)} does not take the parameters {', '.join(names)}: {error}; "
                "give it arguments of these names, or the one argument `trial`"
            ) from None
    return {
        "function": name,
        "pickle": pickled(train, name),
        "path": [entry or os.getcwd() for entry in sys.path],
    }


def pickled(target: Any, name: str) -> str:
    cloudpickle = required("cloudpickle", "cloudpickle", "a sweep of a function")
    try:
        return base64.b64encode(cloudpickle.dumps(target)).decode()
    except Exception as error:
        raise SweepError(
            f"{name} cannot be sent to other processes: {error}; make what it uses inside of it, such as "
            "open files, locks and sessions"
        ) from error


def unpickled(text: str) -> Any:
    import pickle

    return pickle.loads(base64.b64decode(text))


def of_program(command: Sequence[str], names: Iterable[str]) -> Objective:
    """A program in whose words `{rate}` stands for the parameter rate, and `{params}` for all as JSON.

    Raises:
        SweepError: A parameter is in no word.
    """
    if not command:
        raise SweepError("no program to run; write it after --, such as -- python train.py --rate {rate}")
    used = {field for word in command for field in _FIELD.findall(word)}
    missing = [name for name in names if name not in used and "params" not in used]
    if missing:
        raise SweepError(
            f"the program's words do not use {', '.join(missing)}; write {{{missing[0]}}} where its value "
            "belongs, or {params} for all parameters as JSON"
        )
    return {"program": list(command)}


def filled(command: Sequence[str], params: Mapping[str, Any], folder: str, number: int) -> list[str]:
    """The words of one trial. Each stays one word, whatever the values hold."""
    values = {**params, "params": json.dumps(dict(params)), "folder": folder, "number": number}

    def value(match: re.Match[str]) -> str:
        if match[1] not in values:
            return match[0]
        parameter = values[match[1]]
        return parameter if isinstance(parameter, str) else json.dumps(parameter)

    return [_FIELD.sub(value, word) for word in command]


def described(objective: Objective) -> Any:
    """What sweep.json says of it."""
    key = "program" if "program" in objective else "function"
    return {key: objective[key]}
