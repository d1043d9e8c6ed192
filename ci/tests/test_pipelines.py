"""A site's pipeline: real mirrors and real modules of a small channel. In most tests a script stands in for
the validation, so that it can pass, fail, and be interrupted; test_pipeline_slurm.py has the real one.

The files for GitLab, GitHub and Jenkins are checked as far as that is possible without these: by their
schemas, and by the words that they call.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import jsonschema
import pytest
from check_jsonschema.builtin_schemas import get_builtin_schema
from pygments.lexers import get_lexer_by_name
from pygments.token import Error, Operator, Punctuation
from ruamel.yaml import YAML
from scratch_clone import Clone
from small_channel import sign
from tree import ROOT, tracked
from wmlce.release import signature

PIPELINES = ROOT / "ci/pipelines"
STAGES = ("mirror", "install", "validate", "publish", "promote")

# Its exit code and its time are in files, which a test writes; it leaves what a report has.
_VALIDATE = r"""#!/bin/bash
echo "$@" > "$STAND_IN/words"
while [ $# -gt 0 ]; do
  case $1 in --output) output=$2 ;; --history) history=$2 ;; esac
  shift
done
mkdir -p "$output" "$history"
trap 'echo stopped > "$output/index.html"; exit 143' TERM
echo started > "$STAND_IN/started"
for _ in $(seq "$(cat "$STAND_IN/seconds" 2>/dev/null || echo 0)"); do sleep 1 & wait $!; done
cat "$STAND_IN/exit-code" > "$output/index.html"
exit "$(cat "$STAND_IN/exit-code")"
"""


@dataclass(frozen=True)
class Site:
    """A site with a settings file; stand_in: what the validation reads and writes."""

    folder: Path
    settings: Path
    stand_in: Path
    channel: Path

    @property
    def results(self) -> Path:
        return self.folder / "results"

    @property
    def latest(self) -> Path:
        return self.results / "latest"

    @property
    def reports(self) -> list[str]:
        return sorted(path.name for path in self.results.glob("*Z-*"))

    def words(self, *stages: str) -> list[str]:
        return [str(PIPELINES / "site-pipeline"), "--settings", str(self.settings), *stages]

    def environment(self, **more: str) -> dict[str, str]:
        return {**os.environ, "STAND_IN": str(self.stand_in), **more}

    def run(self, *stages: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.words(*stages), env=self.environment(**more), capture_output=True, text=True, timeout=120
        )

    def will_end_with(self, code: int, seconds: int = 0) -> None:
        (self.stand_in / "exit-code").write_text(f"{code}\n")
        (self.stand_in / "seconds").write_text(f"{seconds}\n")

    def default(self) -> str:
        return (self.folder / "sw/modulefiles/ibm-wml-ce/.modulerc").read_text()


@pytest.fixture(scope="module")
def channel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Packages powerai (with a validation that is none) and other."""
    folder = tmp_path_factory.mktemp("clone")
    clone = Clone(folder / "clone", folder / "cache")
    clone.write("recipes/powerai/validate", _VALIDATE)
    install = ["mkdir -p $PREFIX/bin", "install -m 755 validate $PREFIX/bin/wmlce-validate"]
    clone.recipe(
        "powerai",
        source=[{"path": "validate"}],
        script=[*install, "ln -s wmlce-validate $PREFIX/bin/ddlrun"],
    )
    clone.recipe("other")
    clone.built()
    return clone.root / "build/channel"


@pytest.fixture
def site(channel: Path, tmp_path: Path) -> Iterator[Site]:
    stand_in = tmp_path / "stand-in"
    stand_in.mkdir()
    settings = tmp_path / "site.env"
    settings.write_text(
        f"""# of a test
WMLCE_COMMAND={_command(tmp_path)}
WMLCE_SITE=a site's $(name)
WMLCE_CHANNEL={channel}
WMLCE_MIRROR={tmp_path}/mirror

WMLCE_TREE={tmp_path}/sw
WMLCE_MODULE_OPTIONS=--no-compile
WMLCE_RESULTS={tmp_path}/results
"""
    )
    yield Site(tmp_path, settings, stand_in, channel)


def _command(folder: Path) -> Path:
    """wmlce as the tests have it: the tools that are at work here need not be those of build/tools."""
    script = folder / "wmlce"
    path = os.pathsep.join([str(ROOT / "ci"), *sys.path])
    script.write_text(f'#!/bin/sh\nPYTHONPATH="{path}" exec "{sys.executable}" -m wmlce "$@"\n')
    script.chmod(0o755)
    return script


def test_a_good_validation_is_published_and_promoted(site: Site) -> None:
    site.will_end_with(0)
    done = site.run("all", WMLCE_ARTIFACTS=str(site.folder / "artifacts"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert list((site.folder / "mirror").glob("*/powerai-1.0-*.conda"))
    assert list((site.folder / "mirror").glob("*/other-1.0-*.conda"))
    release = (ROOT / "VERSION").read_text().strip()
    assert f"ibm-wml-ce/{release} default" in site.default()
    report, words = site.reports[0], (site.stand_in / "words").read_text()
    assert site.latest.readlink() == Path(report)
    assert (site.latest / "report/index.html").read_text() == "0\n"
    assert (site.folder / "artifacts/report/index.html").read_text() == "0\n"
    # nothing of the settings was run or split
    assert words.startswith("--level smoke --site a site's $(name) --output ") and " -H " not in words
    again = site.run("all", WMLCE_LEVEL="daily", WMLCE_HOSTS="h1,h2", WMLCE_VALIDATE_OPTIONS="--racks 2")
    assert again.returncode == 0, again.stdout + again.stderr
    words = (site.stand_in / "words").read_text()
    assert words.startswith("--level daily ") and words.endswith(" -H h1,h2 --racks 2\n")
    assert len(site.reports) == 2 and site.latest.readlink().name.endswith("-daily")


def test_a_regression_fails_the_pipeline_and_changes_no_default(site: Site) -> None:
    site.will_end_with(0)
    assert site.run("all", WMLCE_MODULE_VERSION="1").returncode == 0
    before = site.default()
    site.will_end_with(15)
    bad = site.run("all", WMLCE_MODULE_VERSION="2")
    assert bad.returncode == 15, bad.stdout + bad.stderr
    assert (site.folder / "sw/ibm-wml-ce/2").is_dir() and site.default() == before
    assert "ibm-wml-ce/1 default" in before
    # what was found is published nevertheless
    assert (site.latest / "report/index.html").read_text() == "15\n" and len(site.reports) == 2
    refused = site.run("promote", WMLCE_MODULE_VERSION="2")
    assert refused.returncode == 1 and "has not passed its last validation" in refused.stderr
    refused = site.run("promote", WMLCE_MODULE_VERSION="1")
    assert refused.returncode == 1, "the last validation was of another version"
    site.will_end_with(0)
    assert site.run("validate", "publish", "promote", WMLCE_MODULE_VERSION="2").returncode == 0
    assert "ibm-wml-ce/2 default" in site.default()


def test_stages_one_by_one_as_a_ci_system_calls_them(site: Site) -> None:
    site.will_end_with(12)
    for stage in ("mirror", "install"):
        assert site.run(stage, WMLCE_PACKAGES="powerai").returncode == 0
    assert not list((site.folder / "mirror").glob("*/other-*"))
    assert site.run("publish").returncode == 1, "there is no validation yet"
    assert site.run("validate").returncode == 12
    published = site.run("publish")
    assert published.returncode == 0, published.stderr
    assert (site.latest / "exit-code").read_text() == "12\n"
    assert site.run("publish").returncode == 1, "it is published already"


def test_old_reports_go_and_the_history_stays(site: Site) -> None:
    site.will_end_with(0)
    assert site.run("mirror", "install").returncode == 0
    old = ["20200101T000000Z-smoke", "20210101T000000Z-daily"]
    for name in (*old, "mine"):
        (site.results / name).mkdir(parents=True)
    assert site.run("validate", "publish", WMLCE_KEEP="2").returncode == 0
    assert site.reports == [old[1], site.latest.readlink().name]
    assert (site.results / "mine").is_dir() and (site.results / "history").is_dir()
    refused = site.run("validate", "publish", WMLCE_KEEP="all")
    assert refused.returncode == 2 and "WMLCE_KEEP=all" in refused.stderr


def test_the_end_of_a_jobs_time_reaches_the_validation_and_is_published(site: Site) -> None:
    site.will_end_with(0, seconds=100)
    assert site.run("mirror", "install").returncode == 0
    process = subprocess.Popen(
        site.words("all"), env=site.environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    limit = time.monotonic() + 60
    while not (site.stand_in / "started").exists() and time.monotonic() < limit:
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    told, _ = process.communicate(timeout=60)
    assert process.returncode == 143, told
    assert (site.latest / "report/index.html").read_text() == "stopped\n", told


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("WMLCE_TREES=/sw", ":10: WMLCE_TREES=/sw: not NAME=VALUE with a NAME that is known"),
        ("PATH=/tmp", ":10: PATH=/tmp: not NAME=VALUE"),
        ("export WMLCE_TREE=/sw", ":10: export WMLCE_TREE=/sw: not NAME=VALUE"),
        ("WMLCE_TREE", ":10: WMLCE_TREE: not NAME=VALUE"),
        ("export WMLCE_CHANNEL=https://me:secret@host/c", "WMLCE_CHANNEL=https://…@host/c: not NAME=VALUE"),
    ],
)
def test_a_settings_file_with_other_lines_is_refused(site: Site, line: str, says: str) -> None:
    with site.settings.open("a") as file:
        file.write(f"{line}\n")
    done = site.run("mirror")
    assert done.returncode == 2 and says in done.stderr and "remedy: the names are: WMLCE_" in done.stderr
    assert "secret" not in done.stdout + done.stderr
    assert not (site.folder / "mirror").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["validate"], "WMLCE_TREE is not set"),
        (["install"], "WMLCE_MIRROR is not set"),
        (["publish"], "WMLCE_RESULTS is not set"),
        (["deploy"], "deploy is no stage"),
        (
            ["--settings", "/nonexistent/site.env", "all"],
            "/nonexistent/site.env: the settings cannot be read",
        ),
        ([], "usage: ci/pipelines/site-pipeline"),
    ],
)
def test_what_is_missing_is_named(words: list[str], says: str) -> None:
    free = {name: value for name, value in os.environ.items() if not name.startswith("WMLCE_")}
    done = subprocess.run(
        [str(PIPELINES / "site-pipeline"), *words], env=free, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2 and says in done.stderr, done.stderr


def test_a_login_is_not_put_on_a_command_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [str(PIPELINES / "site-pipeline"), "mirror"],
        env={
            "PATH": os.environ["PATH"],
            "WMLCE_COMMAND": "/bin/echo",
            "WMLCE_MIRROR": str(tmp_path / "mirror"),
            "WMLCE_CHANNEL": "https://me:secret@host/channel",
        },
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2 and ".netrc" in done.stderr, done.stderr
    assert "secret" not in done.stdout + done.stderr


def test_with_signatures_required_for_all(site: Site, tmp_path: Path) -> None:
    """Of a signed channel, and of one's own builds, which the pipeline's key signs."""
    site.will_end_with(0)
    keys = {name: signature.new_key(tmp_path / name / "key", passphrase=False) for name in ("release", "own")}
    signers = tmp_path / "allowed_signers"
    signers.write_text("".join(key.signers.read_text() for key in keys.values()))
    wanted = {"WMLCE_REQUIRE_SIGNATURE": str(signers), "XDG_STATE_HOME": str(tmp_path / "state")}
    refused = site.run("mirror", **wanted)
    assert refused.returncode == 1 and "is not signed, and WMLCE_REQUIRE_SIGNATURE" in refused.stderr
    signed = tmp_path / "signed"
    shutil.copytree(site.channel, signed)
    sign(signed, keys["release"])
    for number, packages in enumerate(("", "powerai")):
        settings = {"WMLCE_PACKAGES": packages, "WMLCE_MODULE_VERSION": str(number)}
        done = site.run("all", WMLCE_CHANNEL=str(signed), **settings, **wanted)
        assert done.returncode == 0, done.stdout + done.stderr
        assert bool(list(tmp_path.glob("mirror/*/other-*"))) == (number == 0)
        shutil.rmtree(tmp_path / "mirror")
    # the clone that built it has it in build/channel
    clone = site.channel.parents[1]
    shutil.copytree(ROOT / "modulefiles", clone / "modulefiles")
    own = {**wanted, "WMLCE_ROOT": str(clone), "WMLCE_MIRROR": str(tmp_path / "own-mirror")}
    lines = site.settings.read_text().splitlines(keepends=True)
    site.settings.write_text("".join(line for line in lines if not line.startswith("WMLCE_CHANNEL=")))
    done = site.run("all", WMLCE_KEY=str(keys["own"].private), WMLCE_MODULE_VERSION="own", **own)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ibm-wml-ce/own default" in site.default()


def test_help() -> None:
    done = subprocess.run(
        [str(PIPELINES / "site-pipeline"), "--help"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0 and done.stdout.startswith("usage: ci/pipelines/site-pipeline")
    for stage in (*STAGES, "all"):
        assert re.search(rf"^  {stage} +\w", done.stdout, re.MULTILINE), stage


def test_the_page_lists_the_settings() -> None:
    script = (PIPELINES / "site-pipeline").read_text()
    names = set(re.findall(r"WMLCE_\w+", script.partition("NAMES=(")[2].partition(")")[0]))
    page = (ROOT / "docs/cluster/pipelines.md").read_text()
    documented = set(re.findall(r"^\| `(WMLCE_\w+)`", page, re.MULTILINE))
    assert len(names) > 10 and documented == names | {"WMLCE_SETTINGS", "WMLCE_CLONE"}
    used = set(re.findall(r"\bWMLCE_\w+", script)) - {"WMLCE_SETTINGS"}
    assert used == names


def test_the_example_of_a_site_has_known_settings(tmp_path: Path) -> None:
    done = subprocess.run(
        [str(PIPELINES / "site-pipeline"), "--settings", str(PIPELINES / "site.env"), "promote"],
        env={"PATH": os.environ["PATH"], "WMLCE_RESULTS": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1 and "has not passed its last validation" in done.stderr, done.stderr
    assert len((PIPELINES / "site.env").read_text().splitlines()) == 10


@pytest.mark.parametrize(
    ("file", "schema"),
    [("gitlab-ci.yml", "vendor.gitlab-ci"), ("github-workflow.yml", "vendor.github-workflows")],
)
def test_gitlabs_and_githubs_files_fit_their_schemas(file: str, schema: str) -> None:
    known = get_builtin_schema(schema)
    validator = jsonschema.validators.validator_for(known)(known)
    text = (PIPELINES / file).read_text()
    # YAML as these read it: in YAML 1.1 the word `on` is true
    assert [error.message for error in validator.iter_errors(YAML(typ="safe").load(text))] == []
    broken = text.replace("script:", "scrpt:").replace("runs-on:", "runs:")
    assert list(validator.iter_errors(YAML(typ="safe").load(broken)))


def test_actions_of_others_are_named_by_commit() -> None:
    """In workflows, in examples and on pages: a tag can be moved to other content by whoever has the
    repository; the comment says which version it is.
    """
    used = [
        (file.relative_to(ROOT), line.strip())
        for file in tracked(".yml", ".yaml", ".md")
        for line in file.read_text().splitlines()
        if re.match(r"\s*(?:- )?uses:", line)
    ]
    assert len(used) >= 2
    for file, line in used:
        assert re.fullmatch(r"(?:- )?uses: (?:\./\S+|\S+@[0-9a-f]{40} # v\d+(?:\.\d+)*)", line), (
            f"{file}: {line}"
        )


@pytest.mark.parametrize("file", ["gitlab-ci.yml", "github-workflow.yml", "Jenkinsfile"])
def test_every_ci_system_calls_the_same_stages(file: str) -> None:
    """In the pipeline's order, and publishes also what failed: no logic is in these files."""
    text = (PIPELINES / file).read_text()
    called = re.findall(r"ci/pipelines/site-pipeline (\w+)", text)
    assert called == list(STAGES)
    assert re.search(r"always", text)


def test_the_jenkinsfile_can_be_read() -> None:
    """By Pygments' reader of Groovy: no unknown sign, and brackets that close; and the sections are those
    that a declarative pipeline must have.
    """
    text = (PIPELINES / "Jenkinsfile").read_text()
    tokens = list(get_lexer_by_name("groovy").get_tokens(text))
    assert not [value for kind, value in tokens if kind in Error]
    pairs, opened = {")": "(", "]": "[", "}": "{"}, []
    for mark in "".join(value for kind, value in tokens if kind in Punctuation or kind in Operator):
        if mark in pairs.values():
            opened.append(mark)
        elif mark in pairs:
            assert opened and opened.pop() == pairs[mark], f"a {mark} too many"
    assert not opened
    assert re.search(r"^pipeline \{\n    agent ", text, re.MULTILINE)
    assert re.findall(r"^    (\w+) \{", text, re.MULTILINE)[-1] == "stages"


@pytest.mark.parametrize("file", ["site-pipeline", "slurm.sbatch"])
def test_the_shell_scripts_are_in_order(file: str) -> None:
    found = Path(sys.executable).parent / "shellcheck"
    words = [str(found) if found.exists() else str(shutil.which("shellcheck")), str(PIPELINES / file)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout
