"""The environment with Spark, and a cluster that tests of a module share."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from rank_processes import prefix_with
from spark_programs import Spark

PACKAGES = ("powerai", "dask", "dask-jobqueue", "optuna", "pyspark", "tensorflowonspark")
# It says how it is used, then waits for the end of its input.
_HOLD = "import json, os, sys; print(json.dumps(dict(os.environ)), flush=True); sys.stdin.read()"


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
    folder = tmp_path_factory.mktemp("cluster")
    made = Spark(spark_prefix, folder)
    words = ["-m", "ddl.spark_cluster", "--folder", str(folder / "cluster"), "--", made.python, "-c", _HOLD]
    with subprocess.Popen(
        [made.python, *words],
        env=made.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as holder:
        assert holder.stdin and holder.stdout
        line = holder.stdout.readline()
        assert line, "the cluster did not start"
        made.of_cluster = {
            name: value
            for name, value in json.loads(line).items()
            if name.startswith(("SPARK_", "MASTER", "JAVA_HOME", "PYSPARK_"))
        }
        try:
            yield made
        finally:
            holder.stdin.close()
            try:
                holder.wait(30)
            finally:
                holder.kill()
