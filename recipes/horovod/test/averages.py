"""averages.py ddl|mpi torch|tensorflow: on two ranks Horovod's means equal numpy's; DDL made them, or not."""

import ctypes
import importlib
import json
import sys

import numpy as np

built, framework = sys.argv[1:]
hvd = importlib.import_module(f"horovod.{framework}")
hvd.init()
rank, size = hvd.rank(), hvd.size()
assert size == 2, size
assert hvd.ddl_built() == (built == "ddl")

arrays = [np.random.default_rng(r).standard_normal(10_000, "f4") for r in range(size)]
if framework == "torch":
    import torch

    found = hvd.allreduce(torch.from_numpy(arrays[rank].copy())).numpy()
    assert torch.equal(hvd.broadcast(torch.full((3,), rank), root_rank=1), torch.ones(3, dtype=torch.int64))
else:
    import tensorflow as tf

    found = hvd.allreduce(tf.constant(arrays[rank])).numpy()
    np.testing.assert_array_equal(hvd.broadcast(tf.fill([3], rank), root_rank=1), [1, 1, 1])
np.testing.assert_allclose(found, np.mean(arrays, 0), rtol=1e-6, atol=1e-7)

if built == "ddl":
    text = ctypes.create_string_buffer(1 << 16)
    # the library that Horovod has loaded
    assert ctypes.CDLL("libddl.so").ddl_stats(text, ctypes.c_size_t(len(text)), None) == 0
    assert json.loads(text.value)["calls"] >= 2, text.value
# a rank that ends, ends Horovod and DDL everywhere
hvd.allgather_object(rank)
# one write, so that the other rank's line does not get in between
sys.stdout.write("averaged\n")
