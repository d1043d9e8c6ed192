"""Jobs inside and outside of images on emulated hosts, with real Apptainer, ssh, MPI and Slurm: the ranks of
all hosts are in the same image, and what does not fit is told before the start.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import images
import pytest
from images import CROWDED, TRAIN, Result, Singularity
from tree import ROOT

from ddl_validate.cluster import Cluster, ClusterSpec, HostSpec, missing_requirements
from ddl_validate.cluster.slurm import Slurm, missing_slurm

PREFIX = ROOT / "build/envs/powerai"
EXAMPLE = ROOT / "ddl-core/examples/tensorflow/keras_digits.py"
WHERE = """\
import os, ddl, numpy
total = ddl.allreduce(numpy.full(5, ddl.rank() + 1.0))[0]
image = os.path.basename(os.environ.get("SINGULARITY_CONTAINER", "no image"))
print(ddl.rank(), ddl.size(), os.uname().nodename, image, int(total), flush=True)
"""
Start = Callable[..., Result]


def lines(hosts: list[str], image: Path) -> list[str]:
    """What WHERE prints on these hosts, one entry a rank."""
    total = sum(range(1, len(hosts) + 1))
    return [f"{rank} {len(hosts)} {host} {image.name} {total}" for rank, host in enumerate(hosts)]


@pytest.fixture(scope="module")
def hosts(
    singularity: Singularity, small_image: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """h1 to h4; `without` has no Apptainer and `empty` no images. All have a folder with the images."""
    reasons = missing_requirements()
    if reasons:
        pytest.skip("; ".join(reasons))
    system = singularity.program.parent in map(Path, ("/usr/bin", "/usr/local/bin", "/bin"))
    spec = ClusterSpec(
        (
            *(HostSpec(f"h{number}", slots=2) for number in (1, 2, 3, 4)),
            HostSpec("without", hidden=() if system else (str(singularity.program.parent),)),
            HostSpec("empty", hidden=(str(small_image.parent),)),
        ),
        shared=tuple(
            str(path) for path in (ROOT, singularity.program.parents[2]) if path.is_relative_to("/tmp")
        ),
        environment={"SHLVL": "1", **CROWDED, **singularity.variables},
        life_seconds=900,
    )
    with Cluster(spec, tmp_path_factory.mktemp("cluster") / "state") as cluster:
        yield cluster


@pytest.fixture
def folder(hosts: Cluster) -> Path:
    """One that all hosts see: the cluster's own."""
    made = hosts.state / "work"
    made.mkdir(exist_ok=True)
    (made / "where.py").write_text(WHERE)
    return made


@pytest.fixture
def inside(hosts: Cluster, singularity: Singularity, folder: Path) -> Start:
    """inside(image, words…): a command in an image on h1. The keys of the emulated hosts are in /etc/ssh."""

    def run(image: Path, *words: object, limit: float = 120, **more: str) -> Result:
        binds = f"/etc/ssh/ssh_config,{hosts.state}"
        line = [singularity.program, "exec", image, *words]
        return hosts.run(
            "h1", list(map(str, line)), timeout=limit, env={"APPTAINER_BIND": binds, **more}, cwd=folder
        )

    return run


@pytest.fixture
def outside(hosts: Cluster, folder: Path) -> Start:
    """outside(words…): a command on h1, not in an image."""

    def run(*words: object, limit: float = 120, **more: str) -> Result:
        env = {"APPTAINER_BIND": f"/etc/ssh/ssh_config,{hosts.state}", **more}
        return hosts.run("h1", list(map(str, words)), timeout=limit, env=env, cwd=folder)

    return run


def left(hosts: Cluster) -> str:
    """What is left of a job on any host."""
    found = [
        hosts.run(f"h{number}", ["pgrep", "-af", "where.py|prted|prun"], timeout=20) for number in (1, 2)
    ]
    return "".join(one.stdout for one in found)


@pytest.mark.long
def test_four_hosts_train_from_inside_one_image(inside: Start, image: Path, folder: Path) -> None:
    shutil.copy(EXAMPLE, folder)
    words = ["ddlrun", "-H", "h1:2,h2:2,h3:2,h4:2", "-timeout", "280", "python", EXAMPLE.name]
    run = inside(image, *words, "--epochs", "3", "--rate", "0.01", limit=300)
    assert run.returncode == 0, run.stderr
    assert "ranks 8  test accuracy 0." in run.stdout


def test_all_ranks_are_in_the_image(inside: Start, small_image: Path, hosts: Cluster) -> None:
    words = ["ddlrun", "-H", "h1:1,h2:2", "-timeout", "90", "python", "where.py"]
    run = inside(small_image, *words)
    assert run.returncode == 0, run.stderr
    assert sorted(run.stdout.splitlines()) == lines(["h1", "h2", "h2"], small_image)
    assert left(hosts) == ""


def test_ddlrun_outside_becomes_that_of_the_image(outside: Start, small_image: Path) -> None:
    words = [PREFIX / "bin/ddlrun", "-image", small_image, "-imagearg", "--bind /srv:/data"]
    run = outside(*words, "-H", "h1:1,h2:1", "-timeout", "90", "python", "where.py")
    assert run.returncode == 0, run.stderr
    assert sorted(run.stdout.splitlines()) == lines(["h1", "h2"], small_image)
    assert "+ /opt/ibm-wml-ce/bin/mpirun" in run.stderr and "--bind /srv:/data" in run.stderr


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("empty", r"\[ERROR DDL-2-26\] there is no image \S+; host empty; copy it to the same path"),
        ("without", r"\[ERROR DDL-2-26\] the program \S*apptainer, which enters .* not found; host without"),
    ],
)
def test_hosts_that_cannot_enter_are_named(
    inside: Start, small_image: Path, hosts: Cluster, host: str, said: str
) -> None:
    hidden = {one.name: one.hidden for one in hosts.spec.hosts}
    if not hidden[host]:
        pytest.skip("Apptainer is installed in a folder that cannot be hidden from one host")
    run = inside(small_image, "ddlrun", "-H", f"h1,{host}", "python", "where.py")
    assert run.returncode == 1 and run.stdout == ""
    assert re.search(said, run.stderr), run.stderr
    assert "+ " not in run.stderr and left(hosts) == ""


def test_a_bind_that_is_not_there(inside: Start, small_image: Path) -> None:
    options = {"DDL_IMAGE_OPTIONS": "--bind /etc/ssh/ssh_config --bind /nowhere"}
    run = inside(small_image, "ddlrun", "-H", "h1,h2", "python", "where.py", **options)
    assert run.returncode == 1
    assert "[ERROR DDL-2-26] the image cannot be entered there" in run.stderr
    assert "/nowhere" in run.stderr and "DDL_IMAGE_OPTIONS" in run.stderr


def test_a_rank_that_dies_takes_all_with_it(
    inside: Start, small_image: Path, hosts: Cluster, folder: Path
) -> None:
    (folder / "dies.py").write_text(
        "import os, signal, time, ddl\n"
        "if ddl.rank() == 1: os.kill(os.getpid(), signal.SIGKILL)\n"
        "time.sleep(50)\n"
    )
    run = inside(small_image, "ddlrun", "-H", "h1,h2", "-timeout", "60", "python", "dies.py", limit=90)
    assert run.returncode == 137, run.stderr
    assert "rank 1 was killed by signal 9 (SIGKILL); on host h2" in run.stderr
    for name in ("h1", "h2"):
        assert hosts.run(name, ["pgrep", "-af", "dies.py"], timeout=20).stdout == ""


# ---- an mpirun outside


def test_the_mpirun_of_the_same_release_outside(
    outside: Start, singularity: Singularity, small_image: Path
) -> None:
    enter = [singularity.program, "exec", small_image, "python", "where.py"]
    run = outside(PREFIX / "bin/mpirun", "-n", "4", "--oversubscribe", *enter)
    assert run.returncode == 0, run.stderr
    assert sorted(run.stdout.splitlines()) == lines(["h1"] * 4, small_image)


@pytest.mark.long
def test_the_launcher_of_another_mpi_is_refused(
    outside: Start, inside: Start, singularity: Singularity, small_image: Path
) -> None:
    """MPICH's: without a check every rank would train alone, and end with code 0."""
    made = subprocess.run(
        [sys.executable, "-m", "wmlce", "--root", str(ROOT), "env", "create", "peers-mpich", "mpich"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert made.returncode == 0, made.stderr
    mpiexec = ROOT / "build/envs/peers-mpich/bin/mpiexec"
    enter = [singularity.program, "exec", small_image]
    run = outside(mpiexec, "-n", "2", *enter, "python", "where.py")
    assert run.returncode != 0 and run.stdout == ""
    assert "[ERROR DDL-1-5]" in run.stderr and "of 2 but MPI_COMM_WORLD has size 1" in run.stderr
    alone = outside(
        mpiexec, "-n", "2", *enter, "python", "-c", "from mpi4py import MPI; print(MPI.COMM_WORLD.size)"
    )
    assert alone.stdout.split() == ["1", "1"] or "No module named" in alone.stderr  # what is to be prevented
    told = outside(mpiexec, "-n", "2", *enter, "ddlrun", "-doctor")
    assert told.returncode != 0
    assert "problem  launcher around" in told.stdout and "there are 2 ranks" in told.stdout


@pytest.fixture(scope="module")
def older_mpi(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Debian's Open MPI 4.1, with the libraries that it needs, as a site might have it."""
    folder = tmp_path_factory.mktemp("debian")
    root = images.apt_files(folder / "openmpi", "openmpi-bin")
    library = next(root.glob("usr/lib/*/libmpi.so.40"))
    site = folder / "site"
    site.mkdir()
    listed = subprocess.run(
        ["ldd", str(library)],
        env={"LD_LIBRARY_PATH": str(library.parent)},
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    ).stdout
    for path in re.findall(r"=> (/\S+)", listed):
        if not re.search(r"/lib(c|m|dl|pthread|rt|util)\.so", path):
            shutil.copy(path, site)
    shutil.copy(library, site)
    return site


@pytest.mark.long
def test_another_mpi_bound_into_the_image_is_refused(
    singularity: Singularity, small_image: Path, older_mpi: Path, tmp_path: Path
) -> None:
    site = {
        "APPTAINER_BIND": f"{older_mpi}:/site",
        "APPTAINERENV_LD_LIBRARY_PATH": "/site",
        "APPTAINERENV_LD_PRELOAD": "/site/libmpi.so.40",
    }
    run = singularity("exec", small_image, "ddlrun", "-np", "2", "python", TRAIN, cwd=tmp_path, **site)
    assert run.returncode == 1 and run.stdout == ""
    mixture = "DDL gets Open MPI 4.1.4 from /site/libmpi.so.40, and mpirun is Open MPI 5.0.11"
    assert f"[ERROR DDL-2-10] {mixture}" in run.stderr, run.stderr
    told = singularity("exec", small_image, "ddlrun", "-doctor", "-json", cwd=tmp_path, **site)
    assert told.returncode == 1
    assert mixture in [one["found"] for one in json.loads(told.stdout) if one["level"] == "problem"]


def test_the_sites_mpi_of_the_same_version(
    inside: Start, small_image: Path, hosts: Cluster, folder: Path
) -> None:
    """Also on the other hosts, which get what is bound and named."""
    (folder / "mpi.py").write_text(
        "import os, ddl\n"
        "paths = {line.split()[-1] for line in open('/proc/self/maps') if 'libmpi.so' in line}\n"
        "print(ddl.size(), os.uname().nodename, *paths, flush=True)\n"
    )
    site = {
        "APPTAINER_BIND": f"/etc/ssh/ssh_config,{hosts.state},{PREFIX}",
        "APPTAINERENV_LD_PRELOAD": str(PREFIX / "lib/libmpi.so.40"),
        "APPTAINERENV_OPAL_PREFIX": str(PREFIX),
    }
    told = inside(small_image, "ddlrun", "-doctor", **site)
    assert told.returncode == 0 and f"of the site, from {PREFIX}/lib/libmpi.so.40" in told.stdout, told.stdout
    run = inside(small_image, "ddlrun", "-H", "h1,h2", "-timeout", "60", "python", "mpi.py", **site)
    assert run.returncode == 0, run.stderr
    assert sorted(run.stdout.splitlines()) == [f"2 h{i} {PREFIX}/lib/libmpi.so.40" for i in (1, 2)]


def test_what_the_doctor_says(inside: Start, small_image: Path) -> None:
    told = inside(small_image, "ddlrun", "-doctor", "-json")
    assert told.returncode == 0, told.stdout + told.stderr
    found = {one["subject"]: one for one in json.loads(told.stdout)}
    assert str(small_image) in found["image"]["found"] and "lock " in found["image"]["found"]
    assert "/etc/ssh/ssh_config" in found["bound into it"]["found"]
    assert found["MPI"]["found"] == "Open MPI 5.0.11 of the environment, as mpirun"
    assert found["ssh"]["found"] == "found" and found["/dev/shm"]["level"] == "ok"


# ---- Slurm


@pytest.fixture(scope="module")
def slurm(
    singularity: Singularity, small_image: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Slurm]:
    reasons = missing_requirements() + missing_slurm()
    if reasons:
        pytest.skip("; ".join(reasons))
    spec = ClusterSpec.even(
        2,
        2,
        shared=tuple(
            str(path) for path in (ROOT, singularity.program.parents[2]) if path.is_relative_to("/tmp")
        ),
        environment={"SHLVL": "1", **CROWDED, **singularity.variables},
        life_seconds=600,
    )
    with Cluster(spec, tmp_path_factory.mktemp("cluster") / "state") as cluster:
        (cluster.state / "where.py").write_text(WHERE)
        made = Slurm(cluster)
        made.up()
        yield made


@pytest.mark.long
def test_srun_starts_ranks_that_enter_the_image(
    slurm: Slurm, singularity: Singularity, small_image: Path
) -> None:
    enter = [str(singularity.program), "exec", str(small_image), "python", "where.py"]
    words = ["srun", "-N2", "-n4", "--mpi=pmix", *enter]
    run = slurm.run(words, timeout=90, cwd=slurm.cluster.state)
    assert run.returncode == 0, run.stderr
    assert sorted(run.stdout.splitlines()) == lines(["h1", "h1", "h2", "h2"], small_image)
    assert "munge" not in run.stderr


@pytest.mark.long
@pytest.mark.parametrize("way", ["inside, by ssh", "outside, by srun"])
def test_ddlrun_in_a_job(slurm: Slurm, singularity: Singularity, small_image: Path, way: str) -> None:
    state = slurm.cluster.state
    words = [str(PREFIX / "bin/ddlrun"), "-image", str(small_image), "-launcher", "srun"]
    if way.startswith("inside"):
        words = [str(singularity.program), "exec", str(small_image), "ddlrun"]
    line = ["salloc", "--quiet", "-N2", "--ntasks-per-node=2", *words, "-timeout", "60", "python", "where.py"]
    env = {"APPTAINER_BIND": f"/etc/ssh/ssh_config,{state}"}
    run = slurm.run(line, timeout=90, cwd=state, env=env)
    assert run.returncode == 0, run.stderr
    assert sorted(run.stdout.splitlines()) == lines(["h1", "h1", "h2", "h2"], small_image)
    assert ("+ srun --mpi=pmix" in run.stderr) is way.startswith("outside")


@pytest.mark.long
def test_an_image_of_another_release_is_refused_before_the_start(
    slurm: Slurm, singularity: Singularity, small_image: Path, tmp_path: Path
) -> None:
    """The image's ddlrun says so; here an image is bound over with one that does."""
    other = slurm.cluster.state / "ddlrun"
    other.write_text("#!/bin/sh\necho DDL 1.9.0\necho Open MPI 4.1.4\n")
    other.chmod(0o755)
    words = [str(PREFIX / "bin/ddlrun"), "-image", str(small_image), "-launcher", "srun"]
    words += ["-imagearg", f"--bind {other}:/opt/ibm-wml-ce/bin/ddlrun", "python", "where.py"]
    run = slurm.run(["salloc", "--quiet", "-N2", *words], timeout=60, cwd=slurm.cluster.state)
    assert run.returncode == 1 and run.stdout == ""
    assert "[ERROR DDL-2-9] DDL 1.9.0 is in the image, and DDL 2." in run.stderr
