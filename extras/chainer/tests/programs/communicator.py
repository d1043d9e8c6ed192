"""What the communicator does beyond training, and what it refuses."""

import chainer
import chainer.links as L
import chainermn
import ddl
import ddl_chainer
import numpy as np
from mpi4py import MPI

comm = ddl_chainer.create_communicator()
rank, size = comm.rank, comm.size


def passed(case: str) -> None:
    comm.mpi_comm.Barrier()
    print("passed", case, flush=True)


def means() -> None:
    for dtype in (np.float16, np.float32, np.float64):
        with chainer.using_config("dtype", dtype):
            model = L.Linear(3, 2)
        model.W.grad = np.full((2, 3), rank + 1, dtype)
        model.b.grad = np.arange(2).astype(dtype) * rank
        comm.multi_node_mean_grad(model)
        assert (model.W.grad == (size + 1) / 2).all() and model.W.grad.dtype == dtype
        assert np.allclose(model.b.grad, np.arange(2) * (size - 1) / 2)


def means_over_ranks_that_have_none() -> None:
    model = L.Linear(3, 2)
    model.cleargrads()
    if rank == 0:
        model.W.grad = np.ones((2, 3), "f")
    try:
        comm.multi_node_mean_grad(model)
    except ValueError as error:
        assert "parameter /W has a gradient on 1 of" in str(error), error
    else:
        raise AssertionError("not refused")
    comm.multi_node_mean_grad(model, zero_fill=True)
    assert np.allclose(model.W.grad, 1 / size) and (model.b.grad == 0).all()


def same_start() -> None:
    model = L.Linear(4, 5)
    comm.bcast_data(model)
    assert (comm.mpi_comm.bcast(model.W.data) == model.W.data).all()


def batch_statistics() -> None:
    normalisation = chainermn.links.MultiNodeBatchNormalization(3, comm)
    every = np.random.default_rng(3).standard_normal((4 * size, 3)).astype("f")
    found = normalisation(every[4 * rank : 4 * rank + 4]).array
    wanted = (every - every.mean(0)) / np.sqrt(every.var(0) + normalisation.eps)
    np.testing.assert_allclose(found, wanted[4 * rank : 4 * rank + 4], rtol=1e-4, atol=1e-5)


def data_sets() -> None:
    mine = chainermn.scatter_dataset(list(range(10 * size)), comm, shuffle=True, seed=1)
    every = [one for of_rank in comm.mpi_comm.allgather(list(mine)) for one in of_rank]
    assert sorted(every) == list(range(10 * size))


def some_ranks() -> None:
    part = comm.split(rank % 2, rank)
    model = L.Linear(1, 1)
    model.W.grad, model.b.grad = np.full((1, 1), rank, "f"), np.zeros(1, "f")
    part.multi_node_mean_grad(model)
    assert model.W.grad[0, 0] == np.mean(range(rank % 2, size, 2))


for case in (means, means_over_ranks_that_have_none, same_start, batch_statistics, data_sets, some_ranks):
    case()
    passed(case.__name__)
assert chainer.__version__ == "7.8.1"
try:
    ddl_chainer.create_communicator(MPI.COMM_SELF)
except ddl.DDLError as error:
    assert "other ranks" in str(error), error
    passed("one world")
