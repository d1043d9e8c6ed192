"""The mean of gradients over the devices of one process, for --variable_update=replicated."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tf_cnn_benchmarks.all_reduce_spec import Range


@dataclass(frozen=True)
class Packing:
    """How gradients are put together for the exchange.

    parts: into how many equal parts a pack is cut besides what the spec says; 0: none.
    small: only tensors of at most that many bytes are packed, at most `group` of them, and larger ones travel
    singly; 0: all tensors that share an algorithm are one pack.
    scale: the packs travel in float16, multiplied by this so that small numbers survive; None: as they are.
    """

    parts: int = 0
    small: int = 0
    group: int = 10
    scale: Any = None


def all_reduce_mean(
    towers: Sequence[Sequence[Any]],
    devices: Sequence[str],
    spec: Sequence[Range],
    packing: Packing | None = None,
) -> list[list[Any]]:
    """towers[d][i] is gradient i on devices[d]; returns their means in the same arrangement.

    Tensors that share an algorithm travel as one flat vector, if `packing` says nothing else: there are many,
    and most are small.
    """
    packing = packing or Packing()
    means: list[list[Any]] = [[None] * len(tower) for tower in towers]
    for i_range, entry in enumerate(spec):
        floor = spec[i_range - 1].limit if i_range else None
        chosen = [i for i, g in enumerate(towers[0]) if _in_range(_size(g), floor, entry.limit)]
        entry = dataclasses.replace(entry, shards=entry.shards * max(1, packing.parts))
        for pack in _packs(chosen, [_size(g) for g in towers[0]], packing):
            _mean_of_pack(towers, devices, entry, pack, packing.scale, means)
    return means


def _packs(chosen: Sequence[int], sizes: Sequence[int], packing: Packing) -> list[list[int]]:
    """The tensors `chosen`, each pack for an all-reduce of its own."""
    if not chosen:
        return []
    if not packing.small:
        return [list(chosen)]
    small = [i for i in chosen if sizes[i] <= packing.small]
    groups = [small[k : k + packing.group] for k in range(0, len(small), packing.group)]
    return groups + [[i] for i in chosen if sizes[i] > packing.small]


def _mean_of_pack(
    towers: Sequence[Sequence[Any]],
    devices: Sequence[str],
    entry: Range,
    pack: Sequence[int],
    scale: Any,
    means: list[list[Any]],
) -> None:
    """Puts the means of the tensors in `pack` into `means`."""
    flat = []
    for device, tower in zip(devices, towers, strict=True):
        with tf.device(device):
            vector = tf.concat([tf.cast(tf.reshape(tower[i], [-1]), tf.float32) for i in pack], 0)
            flat.append(vector if scale is None else tf.cast(vector * scale, tf.float16))
    sums = _sum_shards(flat, devices, entry)
    for d, device in enumerate(devices):
        with tf.device(device):
            total = tf.cast(sums[d], tf.float32)
            mean = total / len(towers) if scale is None else total / (scale * len(towers))
            sizes = [int(towers[d][i].shape.num_elements()) for i in pack]
            for i, part in zip(pack, tf.split(mean, sizes), strict=True):
                means[d][i] = tf.cast(tf.reshape(part, towers[d][i].shape), towers[d][i].dtype)


def _size(gradient: Any) -> int:
    return int(gradient.shape.num_elements()) * int(gradient.dtype.size)


def _in_range(size: int, floor: int | None, limit: int | None) -> bool:
    return (floor is None or size > floor) and (limit is None or size <= limit)


def _cuts(length: int, parts: int) -> list[int]:
    return [length * (k + 1) // parts - length * k // parts for k in range(parts)]


def _sum_shards(flat: Sequence[Any], devices: Sequence[str], entry: Range) -> list[Any]:
    if entry.shards == 1:
        return _sum(flat, devices, entry.algorithm, 0)
    cuts = _cuts(int(flat[0].shape[0]), entry.shards)
    pieces = []
    for device, vector in zip(devices, flat, strict=True):
        with tf.device(device):
            pieces.append(tf.split(vector, cuts))
    done = [_sum([p[k] for p in pieces], devices, entry.algorithm, k) for k in range(entry.shards)]
    joined = []
    for d, device in enumerate(devices):
        with tf.device(device):
            joined.append(tf.concat([piece[d] for piece in done], 0))
    return joined


def _sum(vectors: Sequence[Any], devices: Sequence[str], algorithm: str, shard: int) -> list[Any]:
    if algorithm == "xring":
        return _ring(vectors, devices)
    # Shards of psgpu are spread over the GPUs, so that no single one receives everything.
    place = "/cpu:0" if algorithm == "pscpu" else devices[shard % len(devices)]
    with tf.device(place):
        total = tf.add_n(list(vectors))
    copies = []
    for device in devices:
        with tf.device(device):
            copies.append(tf.identity(total))
    return copies


def _ring(vectors: Sequence[Any], devices: Sequence[str]) -> list[Any]:
    """Reduce-scatter, then all-gather: in each of the 2 (n - 1) steps a device sends one n-th to the next."""
    n = len(vectors)
    if n == 1:
        return list(vectors)
    cuts = _cuts(int(vectors[0].shape[0]), n)
    chunks: list[list[Any]] = []
    for device, vector in zip(devices, vectors, strict=True):
        with tf.device(device):
            chunks.append(list(tf.split(vector, cuts)))
    for step in range(n - 1):
        for d in range(n):
            chunk, target = (d - step) % n, (d + 1) % n
            with tf.device(devices[target]):
                chunks[target][chunk] = chunks[target][chunk] + chunks[d][chunk]
    for step in range(n - 1):
        for d in range(n):
            chunk, target = (d + 1 - step) % n, (d + 1) % n
            with tf.device(devices[target]):
                chunks[target][chunk] = tf.identity(chunks[d][chunk])
    rings = []
    for device, parts in zip(devices, chunks, strict=True):
        with tf.device(device):
            rings.append(tf.concat(parts, 0))
    return rings
