"""tf.contrib.training: HParams."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from typing import Any

from ddl_tf1._facade import getattr_of


class HParams:
    """Named values of a training, each of which keeps its type."""

    def __init__(self, **kwargs: Any) -> None:
        """Takes names and values."""
        self._types: dict[str, tuple[type, bool]] = {}
        for name, value in kwargs.items():
            self.add_hparam(name, value)

    def add_hparam(self, name: str, value: Any) -> None:
        """Adds one that is not there yet."""
        if hasattr(self, name):
            raise ValueError(f"the hyperparameter {name!r} is there already, or its name is reserved")
        if isinstance(value, list | tuple):
            if not value:
                raise ValueError(f"hyperparameter {name!r}: cannot infer its type from an empty list")
            self._types[name] = (type(value[0]), True)
        else:
            self._types[name] = (type(value), False)
        setattr(self, name, value)

    def set_hparam(self, name: str, value: Any) -> None:
        """Changes a value.

        Raises:
            KeyError: There is no such name.
            ValueError: The value is of another type, or a list in place of a value.
        """
        if name not in self._types:
            raise KeyError(self._unknown(name))
        kind, is_list = self._types[name]
        if isinstance(value, list | tuple) != is_list:
            raise ValueError(f"{name} is {'a list' if is_list else 'one value'}, and {value!r} is not")
        setattr(
            self, name, [_cast(name, kind, each) for each in value] if is_list else _cast(name, kind, value)
        )

    def del_hparam(self, name: str) -> None:
        """Removes one."""
        if name in self._types:
            del self._types[name]
            delattr(self, name)

    def parse(self, values: str) -> HParams:
        """Changes values by a text such as "rate=0.1,layers=[64,32],layers[1]=16".

        Raises:
            ValueError: There is no such name, or the value is of another type.
        """
        for name, text in _assignments(values):
            name, bracket, index = name.partition("[")
            if name not in self._types:
                raise ValueError(self._unknown(name))
            if bracket:
                values_of_list = list(getattr(self, name))
                values_of_list[int(index.rstrip("]"))] = self._parsed(name, text)
                self.set_hparam(name, values_of_list)
            elif text.startswith("["):
                items = [item.strip() for item in text.strip("[]").split(",") if item.strip()]
                self.set_hparam(name, [self._parsed(name, item) for item in items])
            else:
                self.set_hparam(name, self._parsed(name, text))
        return self

    def _unknown(self, name: str) -> str:
        return f"no hyperparameter is named {name!r}; there are {', '.join(sorted(self._types))}"

    def _parsed(self, name: str, text: str) -> Any:
        kind = self._types[name][0]
        if kind is bool and text.lower() in ("true", "false", "1", "0"):
            return text.lower() in ("true", "1")
        if kind is str or text == "":
            return text
        try:
            return ast.literal_eval(text)
        except (SyntaxError, ValueError):
            return text

    def override_from_dict(self, values_dict: Mapping[str, Any]) -> HParams:
        """Changes the values of these names."""
        for name, value in values_dict.items():
            self.set_hparam(name, value)
        return self

    def parse_json(self, values_json: str) -> HParams:
        """Changes values by JSON."""
        return self.override_from_dict(json.loads(values_json))

    def to_json(self, **kwargs: Any) -> str:
        """Returns the values as JSON; kwargs are those of json.dumps."""
        return json.dumps(self.values(), **kwargs)

    def values(self) -> dict[str, Any]:
        """Returns names and values."""
        return {name: getattr(self, name) for name in self._types}

    def get(self, key: str, default: Any = None) -> Any:
        """Returns a value, or default."""
        return getattr(self, key) if key in self._types else default

    def __contains__(self, key: str) -> bool:
        return key in self._types

    def __repr__(self) -> str:
        return f"HParams({', '.join(f'{name}={value!r}' for name, value in sorted(self.values().items()))})"


def _assignments(values: str) -> list[tuple[str, str]]:
    """The names and texts of "a=1,b=[2,3]": commas within brackets separate nothing."""
    parts, depth = [""], 0
    for letter in values:
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    pairs = []
    for part in filter(None, (part.strip() for part in parts)):
        name, equals, text = part.partition("=")
        if not equals:
            raise ValueError(f"hyperparameters {values!r}: {part!r} is not NAME=VALUE")
        pairs.append((name.strip(), text.strip()))
    return pairs


def _cast(name: str, kind: type, value: Any) -> Any:
    if value is None or (isinstance(value, kind) and not (kind is int and isinstance(value, bool))):
        return value
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind is type(None):
        return value
    raise ValueError(f"{name} is of type {kind.__name__}, and {value!r} is not")


__getattr__ = getattr_of(
    "tensorflow.contrib.training",
    {
        "batch_sequences_with_states": "use tf.data",
        "bucket_by_sequence_length": "use tf.data.experimental.bucket_by_sequence_length",
        "create_train_op": "use tf.contrib.slim.learning.create_train_op",
        "train": "train in tf.train.MonitoredTrainingSession",
        "evaluate_once": "restore the checkpoint and run the metrics in tf.train.MonitoredSession",
        "evaluate_repeatedly": "restore each checkpoint and run the metrics in tf.train.MonitoredSession",
    },
)
