"""The standalone cluster: its start and end, jobs on it, what is killed, what is refused."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import time
from pathlib import Path

import pytest
from spark_programs import PROGRAMS, Spark

pytestmark = pytest.mark.slow
EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
TASKS = str(PROGRAMS / "sum_of_squares.py")


def marked(mark: str) -> list[str]:
    """The live processes that have this in their environment."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                if mark.encode() in Path(f"/proc/{name}/environ").read_bytes():
                    found.append(f"{name} {Path(f'/proc/{name}/cmdline').read_bytes()[-200:]!r}")
            except OSError:
                continue
    return found


def wait_for_none(mark: str, limit: float = 40.0) -> None:
    until = time.monotonic() + limit
    while marked(mark):
        assert time.monotonic() < until, f"still there: {marked(mark)}"
        time.sleep(0.2)


def test_job_on_the_shared_cluster(cluster: Spark) -> None:
    done = cluster.run(TASKS)
    assert done.status == 0, done.err
    assert done.value("sum") == "328350"
    assert done.value("are ranks") == "False {1}"
    assert done.value("master") == cluster.of_cluster["SPARK_MASTER"]
    assert done.value("master").startswith("spark://127.0.0.1:")


@pytest.mark.long
def test_spark_ml_finds_what_scikit_learn_finds(cluster: Spark) -> None:
    done = cluster.run(str(EXAMPLES / "logistic_regression.py"), "--data", "600x8")
    assert done.status == 0, done.err
    assert float(done.value("relative difference of coefficients")) < 1e-4
    assert done.value("accuracy") == done.value("scikit-learn's accuracy")
    assert float(done.value("accuracy")) > 0.7 and float(done.value("images/sec")) > 0


def test_nobody_without_the_secret_joins(cluster: Spark) -> None:
    """A program could run anything as the user whom the cluster belongs to. A worker stands in for it: it is
    refused at once, where a program would try for a minute."""
    conf = Path(cluster.of_cluster["SPARK_CONF_DIR"])
    assert stat.S_IMODE((conf / "spark-defaults.conf").stat().st_mode) == 0o600
    assert stat.S_IMODE(conf.stat().st_mode) == 0o700
    words = [cluster.of_cluster["SPARK_HOME"] + "/bin/spark-class", "org.apache.spark.deploy.worker.Worker"]
    words += ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0", cluster.of_cluster["SPARK_MASTER"]]
    environment = cluster.environment(SPARK_CONF_DIR=str(cluster.folder))
    with subprocess.Popen(
        words, env=environment, cwd=cluster.folder, stderr=subprocess.PIPE, text=True
    ) as stranger:
        assert stranger.stderr
        said = []
        try:
            for line in stranger.stderr:
                said.append(line)
                if "Failed to connect to master" in line or "Successfully registered" in line:
                    break
        finally:
            stranger.kill()
    assert "Failed to connect to master" in said[-1], "".join(said)


def test_job_goes_on_without_a_killed_worker(spark: Spark) -> None:
    done = spark.run(str(PROGRAMS / "killed_worker.py"), str(spark.folder))
    assert done.status == 0, done.out + done.err
    assert done.value("executors") == "[1, 1]"
    assert done.value("result") == "[0, 1]"
    assert done.value("workers") == "2"


def test_nothing_is_left_when_the_owner_is_killed(spark: Spark) -> None:
    mark = f"TEST_OF_SPARK_CLUSTER={spark.folder}"
    with spark.start(str(PROGRAMS / "hanging_job.py"), TEST_OF_SPARK_CLUSTER=str(spark.folder)) as owner:
        assert owner.stdout
        folder = Path(owner.stdout.readline().partition(": ")[2].strip())
        until = time.monotonic() + 240
        while not list(folder.glob("work/*/*/*/stderr")) or not any(
            "pyspark.daemon" in line for line in marked(mark)
        ):
            assert time.monotonic() < until and owner.poll() is None, "its task does not begin"
            time.sleep(0.2)
        assert len(marked(mark)) >= 6, marked(
            mark
        )  # owner, supervisor, master, worker, driver, executor, Python
        owner.send_signal(signal.SIGKILL)
    wait_for_none(mark)
    assert not folder.exists()


def test_command_has_the_cluster_and_gives_its_exit_code(spark: Spark) -> None:
    program = (
        "import os, sys\n"
        "given = '--master=' + os.environ['SPARK_MASTER']\n"
        "print(given == '--master=' + os.environ['MASTER'] == sys.argv[1])\n"
        "sys.exit(7)"
    )
    words = ["-m", "ddl_spark", "--workers", "1", "--folder", "kept", "--", spark.python]
    done = spark.run(*words, "-c", program, "--master={master}", TEST_OF_SPARK_CLUSTER=str(spark.folder))
    assert (done.status, done.out) == (7, "True\n"), done.err
    wait_for_none(f"TEST_OF_SPARK_CLUSTER={spark.folder}", 5)
    kept = spark.folder / "kept/logs"
    assert "Successfully registered with master" in (kept / "worker0.log").read_text()


@pytest.mark.parametrize("sender", ["another process", "the command"])
def test_command_gets_the_signal_that_ends_it(spark: Spark, sender: str) -> None:
    """Also one that comes as soon as the command runs: the command sends it."""
    first = 'kill -TERM "$PPID"' if sender == "the command" else "echo runs"
    words = ["-m", "ddl_spark", "--workers", "0", "--", "sh", "-c", f"{first}; exec sleep 600"]
    mark = f"TEST_OF_SPARK_CLUSTER={spark.folder}"
    with spark.start(*words, TEST_OF_SPARK_CLUSTER=str(spark.folder)) as owner:
        if sender != "the command":
            assert owner.stdout and owner.stdout.readline() == "runs\n"
            owner.send_signal(signal.SIGTERM)
        assert owner.wait(40) == 128 + signal.SIGTERM
    wait_for_none(mark, 5)
    assert not list(spark.folder.glob("spark-cluster-*"))


@pytest.mark.parametrize("hosts", [pytest.param("2", marks=pytest.mark.long), "1,1"])
def test_every_rank_has_a_worker(spark: Spark, hosts: str) -> None:
    """Emulated hosts talk over an address of this machine's network, if it has one."""
    if hosts == "1,1":
        asked = "from ddlrun.addresses import own_addresses; print(len(own_addresses()))"
        if spark.run("-c", asked, DDL_AUTO_INIT="0").out == "0\n":
            pytest.skip("this machine has the loopback alone")
    words = ["-m", "ddl_spark", "--folder", "kept", "--", spark.python, TASKS]
    done = spark.ranks(2, *words, DDL_EMULATE_HOSTS=hosts)
    assert done.status == 0, done.out + done.err
    assert done.value("sum") == "328350"
    assert done.value("are ranks") == "False {1}"
    assert ("//127.0.0.1:" in done.value("master")) == (hosts == "2")
    for rank in range(2):
        work = list((spark.folder / f"kept/rank{rank}" / "work" / "worker0").glob("app-*/*/stderr"))
        assert work, f"rank {rank} had no executor"


def test_errors_say_what_java_said(spark: Spark) -> None:
    java = spark.folder / "java/bin/java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho this Java has no memory >&2\nexit 3\n")
    java.chmod(0o755)
    words = ["-m", "ddl_spark", "--folder", "kept", "--", "true"]
    done = spark.run(*words, JAVA_HOME=str(java.parents[1]))
    assert done.status == 2
    assert "the Spark master does not start: it ended with " in done.err
    assert str(spark.folder / "kept/logs/master.log") in done.err and "this Java has no memory" in done.err

    done = spark.run("-m", "ddl_spark", "--limit", "0.01", "--", "true")
    assert done.status == 2 and "not within 0.01 s" in done.err and "--limit" in done.err


@pytest.mark.parametrize(
    "words, said",
    [
        (["--memory", "much", "--", "true"], "memory='much'"),
        (["--cores", "0", "--", "true"], "cores=0"),
        (["--workers", "0", "--", "no-such-program"], "no-such-program: No such file"),
        ([], "COMMAND"),
    ],
)
def test_wrong_options(spark: Spark, words: list[str], said: str) -> None:
    done = spark.run("-m", "ddl_spark", *words)
    assert done.status == 2 and said in done.err, done.err


def test_without_pyspark_it_names_the_package(spark: Spark) -> None:
    program = (
        "import sys, importlib.util as u\n"
        "find = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'pyspark' else find(name, *rest)\n"
        "from ddl_spark.cli import main\n"
        "sys.exit(main(['--', 'true']))"
    )
    done = spark.run("-c", program)
    assert done.status == 2 and "install the package pyspark" in done.err, done.err
