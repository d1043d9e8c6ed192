"""The settings of an optimizer, by which an error explains why ranks have drifted apart."""

from __future__ import annotations

from typing import Any

import numpy as np

from ddl_drift.ranks import Ranks

#: The setting that says which optimizer it is.
KIND = "optimizer"
#: Of PyTorch: how steps are computed, and what schedulers keep; the learning rate is compared by itself.
_NOT_SHOWN = ("params", "foreach", "fused", "capturable", "differentiable", "initial_lr", "lr", "param_names")
#: Of Keras: likewise.
_NOT_SHOWN_OF_KERAS = ("name", "learning_rate", "jit_compile", "is_legacy_optimizer", "inner_optimizer")
_LONGEST = 60
_NONE = "none"


def describe(optimizer: Any) -> dict[str, str]:
    """The class and the settings of an optimizer of PyTorch, Keras or TensorFlow; empty for None."""
    if optimizer is None:
        return {}
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    settings = {KIND: type(inner).__name__}
    groups = getattr(inner, "param_groups", None)
    if groups is None:
        return settings | _of_keras(inner)
    for number, group in enumerate(groups):
        where = _of_group(number, len(groups))
        settings |= {f"{key}{where}": _shown(group[key]) for key in sorted(group) if key not in _NOT_SHOWN}
    return settings


def learning_rates(optimizer: Any) -> dict[str, str]:
    """Returns those of the groups of an optimizer of PyTorch, where it has several."""
    groups = getattr(optimizer, "param_groups", None) or []
    if len(groups) < 2:
        return {}
    return {
        f"learning rate{_of_group(number, len(groups))}": f"{float(group['lr']):g}"
        for number, group in enumerate(groups)
        if "lr" in group
    }


def _of_group(number: int, groups: int) -> str:
    return f" of parameter group {number}:" if groups > 1 else ""


def _of_keras(optimizer: Any) -> dict[str, str]:
    try:
        config = dict(optimizer.get_config())
    except (AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError):
        return {}  # Its class says enough.
    return {key: _shown(config[key]) for key in sorted(config) if key not in _NOT_SHOWN_OF_KERAS}


def _shown(value: Any) -> str:
    if value is None:
        return _NONE
    try:
        text = f"{float(value):g}" if not isinstance(value, bool | str) else str(value)
    except (TypeError, ValueError, RuntimeError):
        text = str(value)
    return " ".join(text.split())[:_LONGEST]


def differences(
    ranks: Ranks, mine: dict[str, str], title: str, absent: str = _NONE
) -> tuple[int, list[tuple[str, str, str]]]:
    """What differs between rank 0 and the first other rank that has something else. Collective.

    Args:
        ranks: Those that are compared.
        mine: This rank's.
        title: The name of the exchange.
        absent: Stands for what a rank does not have.

    Returns:
        The other rank, and each difference: its name, rank 0's and the other's.
    """
    texts = _gather_texts(ranks, "\n".join(f"{key}\t{value}" for key, value in mine.items()), title)
    other = next((rank for rank, text in enumerate(texts) if text != texts[0]), 0)
    first, second = (dict(line.split("\t") for line in texts[rank].splitlines()) for rank in (0, other))
    keys = dict.fromkeys([*first, *second])
    pairs = [(key, first.get(key, absent), second.get(key, absent)) for key in keys]
    return other, [(key, value, other_value) for key, value, other_value in pairs if value != other_value]


def _gather_texts(ranks: Ranks, text: str, title: str) -> list[str]:
    data = text.encode()
    lengths = ranks.gather(np.array([len(data)], np.int64), f"length of {title}")[:, 0]
    padded = data.ljust(-(-int(lengths.max()) // 8) * 8 or 8, b"\0")
    every = ranks.gather(np.frombuffer(padded, np.int64).copy(), title)
    return [row.tobytes()[:length].decode() for row, length in zip(every, lengths.tolist(), strict=True)]
