"""What the tests of the validation programs share: the environment under test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from forked_programs import ForkServer
from program_runner import ROOT, Environment

from ddl_validate.cluster import missing_requirements


@pytest.fixture(scope="session")
def env() -> Environment:
    prefix = Path(os.environ.get("DDL_TEST_PREFIX") or ROOT / "build" / "envs" / "powerai")
    if not (prefix / "bin" / "python").exists():
        pytest.skip(f"no environment in {prefix}: run ci/quickstart, or set DDL_TEST_PREFIX")
    return Environment(prefix)


@pytest.fixture(scope="session")
def able() -> None:
    """Left out where no hosts can be emulated."""
    if reasons := missing_requirements():
        pytest.skip("; ".join(reasons))


@pytest.fixture(scope="session")
def stand_ins() -> Path:
    """The folder of the libraries that stand in for NVIDIA's driver and NCCL (ddl-core/libddl/tests/cuda)."""
    build = Path(os.environ.get("DDL_TEST_BUILD") or ROOT / "build" / "ddl-core")
    folder = build / "libddl" / "tests" / "cuda" / "stand-ins"
    if not (folder / "libnccl.so.2").exists():
        pytest.skip(f"no stand-ins in {folder}: run ci/test, or set DDL_TEST_BUILD")
    return folder


@pytest.fixture(scope="session")
def tf_env(env: Environment) -> Iterator[Environment]:
    """One that imports TensorFlow once for all programs that are not given variables of their own."""
    for module in ("tensorflow", "sklearn", "absl"):
        if not env.has(module):
            pytest.skip(f"{env.prefix} has no {module}")
    server = ForkServer(env.prefix / "bin/python")
    yield replace(env, forks=server)
    server.close()


@pytest.fixture(scope="session")
def ddl_env(tf_env: Environment) -> Environment:
    if not tf_env.has("ddl.tensorflow"):
        pytest.skip(f"{tf_env.prefix} has no ddl.tensorflow")
    if not (tf_env.prefix / "bin" / "mpirun").exists():
        pytest.skip(f"{tf_env.prefix} has no mpirun")
    return tf_env


@pytest.fixture(scope="session")
def weights(tf_env: Environment) -> Callable[..., dict[str, Any]]:
    """weights(folder, step): the variables of a checkpoint as nested lists, and their names."""
    code = """
import json, sys, tensorflow as tf
read = tf.train.load_checkpoint(sys.argv[1])
print(json.dumps({name: read.get_tensor(name).tolist() for name in read.get_variable_to_shape_map()}))
"""

    def load(folder: Path, step: int) -> dict[str, Any]:
        return dict(tf_env.evaluate(code, folder / f"model.ckpt-{step}"))

    return load
