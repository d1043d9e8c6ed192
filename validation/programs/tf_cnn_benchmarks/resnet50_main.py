#!/usr/bin/env python3
"""ResNet-50 by tf_cnn_benchmarks, with the flags of WML CE's tensorflow-benchmarks/resnet50/main.py.

Flags that are not below go to tf_cnn_benchmarks as they are. It refuses those that it does not know, such as
--use_cosine and --label_smoothing. On a host without a GPU add --device=cpu.
"""

import argparse
import sys

from tf_cnn_benchmarks.cli import run

_TRAINING = ("train", "training_benchmark")


def flags_of_tf_cnn_benchmarks(arguments: list[str]) -> list[str]:
    """The flags that start what `arguments` ask for."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--mode", choices=(*_TRAINING, "train_and_evaluate", "evaluate"), default="train")
    parser.add_argument("--iter_unit", choices=("epoch", "batch"), default="epoch", help="unit of --num_iter")
    parser.add_argument("--num_iter", type=int, default=1, help="length of the training")
    parser.add_argument("--warmup_steps", type=int, help="steps before the clock starts")
    parser.add_argument("--batch_size", type=int, default=32, help="images of one step and rank")
    parser.add_argument("--data_dir", help="ImageNet as TFRecords; without it, generated images")
    parser.add_argument("--results_dir", help="for checkpoints")
    parser.add_argument("--precision", choices=("fp32", "fp16"), default="fp32")
    parser.add_argument("--amp", "--use_tf_amp", action="store_true", help="the same as --precision=fp16")
    options, others = parser.parse_known_args(arguments)
    length = "num_batches" if options.iter_unit == "batch" else "num_epochs"
    flags = ["--model=resnet50", "--variable_update=ddl", f"--batch_size={options.batch_size}"]
    if options.mode == "evaluate":
        flags.append("--eval")
    else:
        flags.append(f"--{length}={options.num_iter}")
    if options.mode == "train_and_evaluate":
        flags.append("--eval_during_training_every_n_epochs=1")
    if options.warmup_steps is not None:
        flags.append(f"--num_warmup_batches={options.warmup_steps}")
    if options.data_dir:
        flags.append(f"--data_dir={options.data_dir}")
    if options.results_dir:
        flags.append(f"--train_dir={options.results_dir}")
    if options.amp or options.precision == "fp16":
        flags.append("--use_fp16")
    return [*flags, *others]


if __name__ == "__main__":
    sys.argv[1:] = flags_of_tf_cnn_benchmarks(sys.argv[1:])
    run()
