"""Flags of job files that this program does not act on: why each changes nothing here, or why it is refused.

A flag that equals its default says nothing and is passed over in silence. Any other value of one in
`ACCEPTED` is answered by a note, of one in `REFUSED` by an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tf_cnn_benchmarks.errors import BenchmarkError, unknown


@dataclass(frozen=True)
class Unused:
    """`reason` ends the sentence "changes nothing:", or says why a value is refused and what to use
    instead."""

    kind: type
    default: Any
    reason: str
    choices: tuple[str, ...] = ()


_CUDNN = "TensorFlow is built for CPUs here, without the cuDNN whose algorithms it chooses"
_OPENMP = "TensorFlow computes with oneDNN on its own threads, which read no setting of Intel's OpenMP"

ACCEPTED: dict[str, Unused] = {
    "collect_eval_results_async": Unused(
        bool, False, "the accuracy is computed in the graph, nothing is left to collect afterwards"
    ),
    "autotune_threshold": Unused(int, None, _CUDNN),
    "use_datasets": Unused(
        bool, True, "real input always comes through tf.data; the same images are read in the same way"
    ),
    "hierarchical_copy": Unused(
        bool, False, "--all_reduce_spec decides how gradients travel between devices, such as xring"
    ),
    "network_topology": Unused(
        str, "dgx1", "it is only used by --hierarchical_copy, which has no effect", ("dgx1", "gcp_v100")
    ),
    "variable_consistency": Unused(
        str,
        "strong",
        "each step waits for its own gradients, which is all that relaxed asks for and more",
        ("strong", "relaxed"),
    ),
    "use_tf_layers": Unused(bool, True, "the layers are TensorFlow's plain operators in either case"),
    "use_python32_barrier": Unused(
        bool, False, "no Python threads wait for each other; tf.data makes the input"
    ),
    "multi_device_iterator_max_buffer_size": Unused(
        int, 1, "one iterator serves all devices; --datasets_prefetch_buffer_size says how far it is ahead"
    ),
    "winograd_nonfused": Unused(bool, True, _CUDNN),
    "batchnorm_persistent": Unused(bool, True, _CUDNN),
    "staged_vars": Unused(
        bool, False, "a step reads the variables themselves, not copies staged a step before"
    ),
    "use_resource_vars": Unused(bool, False, "all variables are resource variables"),
    "sparse_to_dense_grads": Unused(bool, False, "the gradients of all models are dense"),
    "mkl": Unused(bool, False, _OPENMP),
    "kmp_blocktime": Unused(int, 0, _OPENMP),
    "kmp_affinity": Unused(str, "granularity=fine,verbose,compact,1,0", _OPENMP),
    "kmp_settings": Unused(int, 1, _OPENMP),
    "allreduce_merge_scope": Unused(
        int, 1, "gradients are packed before they are exchanged, so no later pass has operators to merge"
    ),
    "trt_max_workspace_size_bytes": Unused(int, 4 << 30, "it belongs to --trt_mode, which is refused"),
}

REFUSED: dict[str, Unused] = {
    "debugger": Unused(
        str,
        None,
        "TensorFlow's session debugger stops at every step and asks at a terminal, which ranks do not have; "
        "look at a step with --trace_file, --tfprof_file or --partitioned_graph_file_prefix",
    ),
    "trt_mode": Unused(
        str,
        "",
        "TensorFlow is built without TensorRT here; measure the plain forward pass with --forward_only, and "
        "--freeze_when_forward_only or --xla_compile",
        ("", "FP32", "FP16", "INT8"),
    ),
}


def notes_or_error(values: Mapping[str, Any]) -> list[str]:
    """A note for each accepted flag that was changed; BenchmarkError for a refused one or a wrong value."""
    for name, flag in (REFUSED | ACCEPTED).items():
        if flag.choices and values[name] not in flag.choices:
            raise unknown(f"value of --{name}", str(values[name]), flag.choices)
    for name, flag in REFUSED.items():
        if values[name] not in (flag.default, None):
            raise BenchmarkError(f"--{name}: {flag.reason}")
    return [
        f"--{name} changes nothing: {flag.reason}"
        for name, flag in ACCEPTED.items()
        if values[name] != flag.default
    ]
