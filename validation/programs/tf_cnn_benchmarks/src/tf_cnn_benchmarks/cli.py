"""The command line."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Sequence
from typing import NoReturn

from tf_cnn_benchmarks.choices import WITH_RANKS
from tf_cnn_benchmarks.cluster.spec import Cluster, find_cluster
from tf_cnn_benchmarks.environment import prepare_environment
from tf_cnn_benchmarks.errors import BenchmarkError
from tf_cnn_benchmarks.params import Params, help_text, parse
from tf_cnn_benchmarks.workers import launched_rank, make_workers

RANK_0_FIRST_SECONDS = 3.0


def main(argv: Sequence[str]) -> int:
    """Runs with `argv` (program name first); returns the exit code. What the user can mend is one line."""
    rank, size = launched_rank()
    try:
        params = parse(argv)
        if params is None:
            if rank == 0:
                print(help_text())
            return 0
        cluster = find_cluster(params, os.environ)
        if cluster is None:
            _check_launch(params, rank, size)
    except BenchmarkError as error:
        # All ranks were given the same flags, so all end here; one need say why.
        if rank == 0:
            _say(str(error))
        else:
            # The launcher ends rank 0 as soon as another rank has left.
            time.sleep(RANK_0_FIRST_SECONDS)
        return 1
    if cluster is not None:
        _run_task(params, cluster)
    try:
        _run(params)
    except BenchmarkError as error:
        if rank:
            # Often all ranks find the same; when rank 0 has said it and left, the launcher ends the others.
            time.sleep(RANK_0_FIRST_SECONDS)
        _say(str(error) if size == 1 else f"rank {rank}: {error}")
    except BaseException:
        if size == 1:
            raise
        traceback.print_exc()
    else:
        return 0
    if size > 1:
        # An orderly exit would finalise MPI and so wait for ranks that wait in a collective themselves.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)
    return 1


def _run_task(params: Params, cluster: Cluster) -> NoReturn:
    """A task of a cluster. TensorFlow's servers know no orderly end, least of all when others have left."""
    try:
        prepare_environment(params)
        from tf_cnn_benchmarks.cluster.run import run_task

        run_task(params, cluster)
    except BenchmarkError as error:
        _say(f"{cluster.task}: {error}")
        # Here, where nothing of the run is taken down yet: a session would wait for servers that have gone.
        _leave(1)
    except BaseException:
        traceback.print_exc()
        _leave(1)
    _leave(0)


def _leave(rc: int) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(rc)


def _say(text: str) -> None:
    print(f"tf_cnn_benchmarks: error: {text}", file=sys.stderr, flush=True)


def _check_launch(params: Params, rank: int, size: int) -> None:
    """Several processes that share nothing are seldom meant."""
    if size == 1 or params.variable_update in WITH_RANKS:
        return
    if params.train_dir is not None:
        raise BenchmarkError(
            f"{size} processes would all write to --train_dir={params.train_dir}, for "
            f"--variable_update={params.variable_update} trains in each alone; use --variable_update=ddl"
        )
    if rank == 0:
        print(
            f"tf_cnn_benchmarks: {size} processes were started, but "
            f"--variable_update={params.variable_update} trains in each alone; "
            "--variable_update=ddl lets them train together",
            file=sys.stderr,
            flush=True,
        )


def _run(params: Params) -> None:
    """Imports TensorFlow only now: flag errors and --help need not wait for it."""
    prepare_environment(params)
    try:
        workers = make_workers(params.variable_update, horovod_device=params.horovod_device)
        from tf_cnn_benchmarks.benchmark import run_benchmark

        run_benchmark(params, workers)
    except RuntimeError as error:
        # Its class is in a package that need not be installed; its text says what, where and the remedy.
        if type(error).__name__ != "DDLError":
            raise
        raise BenchmarkError(" ".join(str(error).split())) from error


def run() -> None:
    """The entry point of the command `tf_cnn_benchmarks`."""
    raise SystemExit(main(sys.argv))
