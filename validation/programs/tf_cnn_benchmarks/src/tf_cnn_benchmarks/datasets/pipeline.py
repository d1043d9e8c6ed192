"""The end of every input pipeline: how batches get ahead of the steps."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_cnn_benchmarks.datasets.spec import InputOptions


def ahead(batches: Any, options: InputOptions, *, threads: int) -> Any:
    """`batches`, a data set of them, in groups and prepared ahead, with as many `threads` of its own unless
    the options name a number."""
    if options.batch_group_size > 1:
        # A group is one element for the operators before it, and comes apart into its batches again.
        batches = batches.batch(options.batch_group_size).unbatch()
    if options.prefetch:
        batches = batches.prefetch(options.prefetch)
    private_threads = threads if options.private_threads is None else options.private_threads
    if not private_threads:
        return batches
    threading = tf.data.Options()
    threading.threading.private_threadpool_size = private_threads
    return batches.with_options(threading)
