"""Flags that act, but not in this run: a line for each says why.

What a flag acts on stands beside it in `params.py` (`only`).
"""

from __future__ import annotations

from tf_cnn_benchmarks.choices import REPLICATED, SERVED
from tf_cnn_benchmarks.models import find_model
from tf_cnn_benchmarks.params import Params, flag_fields


def notes(params: Params, *, device: str) -> list[str]:
    """For flags that were given another value than their default; `device` is the kind that the model runs
    on."""
    lines = list(params.notes)
    for name, spec in flag_fields().items():
        only = spec.metadata["only"]
        if only and params.changed(name) and (reason := _reason(only, params, device)):
            lines.append(f"--{name} {reason}")
    if params.use_fp16 and device == "cpu":
        lines.append(
            "--use_fp16: TensorFlow has no fast float16 kernels for processors (ResNet-50: 0.3 images/s on a "
            "rank); leave the flag out there, float32 is many times faster"
        )
    if params.changed("compact_gradient_transfer") and not params.use_fp16:
        lines.append("--compact_gradient_transfer has no effect without --use_fp16: gradients are float32")
    if params.changed("agg_small_grads_max_group") and not params.agg_small_grads_max_bytes:
        lines.append("--agg_small_grads_max_group has no effect without --agg_small_grads_max_bytes")
    if params.changed("distort_color_in_yiq") and not params.distortions:
        lines.append("--distort_color_in_yiq has no effect without --distortions")
    if params.changed("use_chrome_trace_format") and not params.trace_file:
        lines.append("--use_chrome_trace_format has no effect without --trace_file")
    return lines


def _reason(only: str, params: Params, device: str) -> str | None:
    """Why a flag that acts on `only` does nothing in this run; None where it does something."""
    files = params.data_dir is not None
    if only == "gpu" and device != "gpu":
        return "concerns GPUs; it has no effect with --device=cpu"
    if only == "imagenet files" and not (files and params.data_name == "imagenet"):
        return "concerns the files of --data_name=imagenet with --data_dir; it has no effect here"
    if only == "augmented files" and not files:
        return f"concerns the images of --data_dir; it has no effect on {_images(params)}"
    if only == "augmented files" and not params.training:
        return "concerns training; it has no effect here"
    if only == "input" and not (files or params.data_name == "digits"):
        return "concerns real input; it has no effect on synthetic images"
    if only == "replicated" and not _reduces(params):
        return "concerns --variable_update=replicated on several devices; it has no effect here"
    if only == "servers" and params.variable_update not in SERVED:
        return f"concerns parameter servers; it has no effect with {params.variable_update}"
    if only == "horovod" and params.variable_update != "horovod":
        return f"concerns --variable_update=horovod; it has no effect with {params.variable_update}"
    if only == "resnet" and not find_model(params.model, params.data_name).recipe.serves_resnet_base_lr:
        return (
            f"concerns resnet50, resnet101 and resnet152 of ImageNet; it has no effect on {params.model} of "
            f"{params.data_name}"
        )
    return None


def _reduces(params: Params) -> bool:
    """Whether the gradients of several devices of one process (or one controller) are reduced."""
    if params.variable_update == "distributed_all_reduce":
        return True
    return params.variable_update in REPLICATED and params.num_gpus > 1


def _images(params: Params) -> str:
    return "digits" if params.data_name == "digits" else "synthetic images"
