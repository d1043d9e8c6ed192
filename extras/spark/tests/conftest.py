"""The environment with Spark, and a cluster that tests of a module share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from rank_processes import prefix_with
from spark_programs import Spark, shared_cluster

PACKAGES = ("powerai", "dask", "dask-jobqueue", "optuna", "pyspark", "tensorflowonspark")


@pytest.fixture(scope="session")
def spark_prefix() -> Path:
    """The environment under test, or one with Spark beside it."""
    found = prefix_with("lib/python3*/site-packages/tensorflowonspark/__init__.py", "ddl-engines", *PACKAGES)
    for package in ("pyspark", "sklearn", "tensorflow"):
        if not list(found.glob(f"lib/python3*/site-packages/{package}/__init__.py")):
            pytest.skip(f"no {package} in {found}")
    return found


@pytest.fixture
def spark(spark_prefix: Path, tmp_path: Path) -> Spark:
    """No cluster; programs have a folder of their own."""
    return Spark(spark_prefix, tmp_path)


@pytest.fixture(scope="module")
def cluster(spark_prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spark]:
    """A cluster of two workers with one core each, which the programs find by their environment."""
    with shared_cluster(spark_prefix, tmp_path_factory.mktemp("cluster")) as made:
        yield made
