"""What a trial runs: a function, or a program with the parameters in its words. In a form that travels."""

from __future__ import annotations

import base64
import inspect
import json
import os
import pickle
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from .errors import SweepError, required

#: What a task holds: {"program": words} or {"function": name, "pickle": text, "path": sys.path}.
Objective = dict[str, Any]
_FIELD = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


def of(train: Any, names: Iterable[str]) -> Objective:
    """A function, pickled by value where its module is the script that runs, or a program in whose words
    `{rate}` stands for the parameter rate, and `{params}` for all as JSON.

    Raises:
        SweepError: It is neither, does not take the parameters, or cannot be pickled.
    """
    if callable(train):
        return _of_function(train, names)
    if not isinstance(train, Sequence) or isinstance(train, str):
        raise SweepError(f"{train!r} cannot be run; give a function, or a list of a program's words")
    command = [str(word) for word in train]
    if not command:
        raise SweepError("no program to run; write it after --, such as -- python train.py --rate {rate}")
    used = {field for word in command for field in _FIELD.findall(word)}
    missing = [name for name in names if name not in used and "params" not in used]
    if missing:
        raise SweepError(
            f"the program's words do not use {', '.join(missing)}; write {{{missing[0]}}} where its value "
            "belongs, or {params} for all parameters as JSON"
        )
    return {"program": command}


def _of_function(train: Callable[..., Any], names: Iterable[str]) -> Objective:
    name = f"{getattr(train, '__module__', '')}.{getattr(train, '__qualname__', type(train).__name__)}"
    if not takes_trial(train):
        try:
            inspect.signature(train).bind(**dict.fromkeys(names))
        except TypeError as error:
            raise SweepError(
                f"{name}{inspect.signature(train)} does not take the parameters {', '.join(names)}: {error}; "
                "give it arguments of these names, or the one argument `trial`"
            ) from None
    path = [entry or os.getcwd() for entry in sys.path]
    return {"function": name, "pickle": pickled(train, name), "path": path}


def takes_trial(train: Callable[..., Any]) -> bool:
    """Whether the first parameter of a function is called `trial`; else it takes the parameters by name."""
    return next(iter(inspect.signature(train).parameters), None) == "trial"


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
    return pickle.loads(base64.b64decode(text))


def filled(command: Sequence[str], params: Mapping[str, Any], folder: str, number: int) -> list[str]:
    """The words of one trial. Each stays one word, whatever the values hold."""
    fields = {**params, "params": json.dumps(dict(params)), "folder": folder, "number": number}
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in fields.items()}
    return [_FIELD.sub(lambda match: texts.get(match[1], match[0]), word) for word in command]
