"""How ddlrun gets into images: from a container's variables, and by -image; with a stand-in for the program.
The real one is in ci/tests/test_image_cluster.py.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest
from ddlrun import cli, image
from ddlrun.checks.remote_probe import ProbeSettings, read_answer, remote_command
from ddlrun.command_line.parser import parse
from ddlrun.environment import Environment
from ddlrun.errors import Code, LaunchError
from ddlrun.image import Image
from ddlrun.start.launch_agent import launch_agent
from hypothesis import given, settings
from hypothesis import strategies as st

AROUND = {
    "APPTAINER_CONTAINER": "/sw/ddl.sif",
    "APPTAINER_BIND": "/scratch,/data",
    "USER_PATH": "/sw/bin:/bin",
}
STANDIN = """\
#!/bin/sh
# exec OPTIONS IMAGE WORDS: tells what it was called with, and runs WORDS
test "$1" = exec || exit 9
shift
while test "${1#--}" != "$1"; do shift 2; done
echo "image $1" >&2
shift
exec "$@"
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    made = tmp_path / "bin/apptainer"
    made.parent.mkdir()
    made.write_text(STANDIN)
    made.chmod(0o755)
    return made


def test_no_image_around() -> None:
    assert image.current({"PATH": "/bin"}) is None


def test_the_image_around() -> None:
    found = image.current(AROUND, folder="/home/me/run")
    assert found == Image(
        "/sw/ddl.sif",
        "apptainer",
        ("--bind", "/scratch", "--bind", "/data", "--bind", "/home/me/run"),
        "/sw/bin:/bin",
    )
    assert found.exec_command() == ["apptainer", "exec", *found.options, "/sw/ddl.sif"]
    assert found.plain_words() == ["/usr/bin/env", "PATH=/sw/bin:/bin", *found.exec_command()]


def test_a_folder_that_is_bound_already_is_not_bound_again() -> None:
    for folder, expected in (("/data", 2), ("/data/x", 2), ("/database", 3), ("/no/plain path", 2)):
        found = image.current(AROUND, folder=folder)
        assert found and found.options.count("--bind") == expected, folder


def test_singularity_and_what_the_user_says() -> None:
    around = {
        "SINGULARITY_CONTAINER": "/sw/ddl.sif",
        "SINGULARITY_BIND": "/data",
        "DDL_IMAGE_OPTIONS": "--unsquash --bind '/a b:/data'",
        "DDL_IMAGE_PROGRAM": "/opt/bin/singularity",
        "USER_PATH": "/bin",
    }
    found = image.current(around, folder="/data/run")
    assert found and found.program == "/opt/bin/singularity"
    assert found.options == ("--unsquash", "--bind", "/a b:/data")  # these alone, not the places of binds
    assert found.plain_words()[0] == "/opt/bin/singularity"
    with pytest.raises(LaunchError, match="close the quotes"):
        image.current({**around, "DDL_IMAGE_OPTIONS": "'"}, folder="/")


def test_a_sites_mpi_goes_along() -> None:
    around = {
        **AROUND,
        "LD_PRELOAD": "/site/libmpi.so",
        "LD_LIBRARY_PATH": "/.singularity.d/libs",
        "OPAL_PREFIX": "a,b",
    }
    found = image.current(around, folder="/data")
    assert found and found.options[-2:] == ("--env", "LD_PRELOAD=/site/libmpi.so")


def test_other_hosts_enter_the_image(program: Path, tmp_path: Path) -> None:
    """The words for ssh, run by a shell as on another host."""
    file = tmp_path / "an image.sif"
    file.touch()
    inner = Environment(Path("/nowhere"), Path("/nowhere/ddl"), Path("/nowhere/mpirun"))
    search = str(program.parent)

    def answer(around: Image) -> tuple[object, str]:
        environment = Environment(inner.prefix, inner.package, inner.mpirun, around)
        words = remote_command("host", environment, "0f", settings=ProbeSettings("/a b"))
        done = subprocess.run(
            ["/bin/sh", "-c", words[-1]],
            env={"PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
        return read_answer(done.stdout, "0f"), done.stderr

    entered = answer(Image(str(file), "apptainer", ("--bind", "/x y"), search))
    assert entered == (None, f"image {file}\n")  # there is no environment in it, as nothing is at /nowhere
    assert answer(Image(f"{file}.gone", "apptainer", (), search))[0] == "image"
    assert answer(Image(str(file), "apptainer-of-nobody", (), search))[0] == "program"


@settings(max_examples=30)
@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=12))
def test_any_path_of_an_image_is_one_word(name: str) -> None:
    around = Image(f"/nowhere/{name}", "apptainer", ("--bind", name))
    environment = Environment(Path("/nowhere"), Path("/nowhere/ddl"), Path("/nowhere/mpirun"), around)
    words = remote_command("host", environment, "0f")
    done = subprocess.run(
        ["/bin/sh", "-c", words[-1]], capture_output=True, text=True, timeout=10, check=False
    )
    assert done.returncode == 0 and done.stderr == ""
    assert read_answer(done.stdout, "0f") == "image"


def test_the_daemons_of_mpirun_start_in_the_image() -> None:
    around = image.current(AROUND, folder="/data")
    environment = Environment(Path("/opt/env"), Path("/opt/env/ddl"), Path("/opt/env/bin/mpirun"), around)
    agent = launch_agent(environment, "job")
    assert agent is not None and around is not None
    words = agent.split()
    assert words[: len(around.plain_words())] == around.plain_words()
    assert words[len(around.plain_words())] == "/opt/env/bin/python3" and words[-2:] == ["job", "prted"]
    plain = Environment(environment.prefix, environment.package, environment.mpirun)
    assert str(launch_agent(plain, "job")).startswith("/opt/env/bin/python3 ")


def test_by_image_the_command_line_goes_inside(program: Path, tmp_path: Path) -> None:
    file = tmp_path / "ddl.sif"
    file.touch()
    parsed = parse(
        ["-image", str(file), "--np=2", "-imagearg", "--bind '/a b'", "-v", "python", "-image", "x"]
    )
    assert parsed.inside == ("-np", "2", "-verbose", "--", "python", "-image", "x")
    environment = {"PATH": str(program.parent), "APPTAINER_BIND": "/data"}
    found = image.chosen(str(parsed.image), parsed.image_words(), environment)
    assert found == Image(str(file), str(program), ("--bind", "/data", "--bind", "/a b"))
    words, variables = image.inside(found, parsed.inside, environment)
    assert words == [str(program), "exec", *found.options, str(file), "ddlrun", *parsed.inside]
    assert shlex.split(variables["DDL_IMAGE_OPTIONS"]) == list(found.options)
    assert variables["DDL_IMAGE_PROGRAM"] == str(program)


@pytest.mark.parametrize(
    ("missing", "code", "said"),
    [
        ("image", Code.IMAGE, "there is no image"),
        ("program", Code.IMAGE, "apptainer and singularity were not found"),
        ("outside", Code.NESTED, "runs in the image /sw/ddl.sif already"),
    ],
)
def test_an_image_that_cannot_be_entered(
    missing: str, code: Code, said: str, program: Path, tmp_path: Path
) -> None:
    file = tmp_path / "ddl.sif"
    environment = {"PATH": str(program.parent)}
    if missing != "image":
        file.touch()
    if missing == "program":
        environment["PATH"] = "/nowhere"
    if missing == "outside":
        environment |= AROUND
    with pytest.raises(LaunchError, match=said) as caught:
        image.chosen(str(file), [], environment)
    assert caught.value.code == code


def test_srun_and_the_image_must_fit(program: Path, tmp_path: Path) -> None:
    inner = tmp_path / "bin/ddlrun"
    inner.write_text("#!/bin/sh\necho DDL 2.0.0\necho Open MPI 5.0.11\n")
    inner.chmod(0o755)
    found = Image(str(tmp_path), str(program))
    os.environ["PATH"] = f"{program.parent}:{os.environ['PATH']}"
    try:
        image.require_fit(found, "DDL 2.0.0\nOpen MPI 5.0.11\nPython 3")
        with pytest.raises(
            LaunchError, match=r"Open MPI 5\.0\.11 is in the image, and Open MPI 4\.1\.4 here"
        ):
            image.require_fit(found, "DDL 2.0.0\nOpen MPI 4.1.4")
        inner.write_text("#!/bin/sh\necho broken >&2\nexit 1\n")
        with pytest.raises(LaunchError, match=r"ddlrun does not run in the image: image .* / broken"):
            image.require_fit(found, "DDL 2.0.0\nOpen MPI 4.1.4")
    finally:
        os.environ["PATH"] = os.environ["PATH"].partition(":")[2]


def test_imagearg_needs_an_image(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["-imagearg", "--nv", "true"]) == 2
    assert "-imagearg without -image" in capsys.readouterr().err


def test_the_doctor_outside_of_images(prefix: Path) -> None:
    ddlrun = prefix / "bin/ddlrun"
    told = subprocess.run(
        [str(ddlrun), "-doctor", "-json"], capture_output=True, text=True, timeout=60, check=False
    )
    assert told.returncode == 0, told.stderr
    found = {one["subject"]: one for one in json.loads(told.stdout)}
    assert found["image"]["found"] == "none around" and found["MPI"]["level"] == "ok"
    around = {**os.environ, "PMI_SIZE": "4"}
    alone = subprocess.run(
        [str(ddlrun), "-doctor"], env=around, capture_output=True, text=True, timeout=60, check=False
    )
    assert alone.returncode == 1 and "there are 4 ranks, and speaks no PMIx" in alone.stdout
