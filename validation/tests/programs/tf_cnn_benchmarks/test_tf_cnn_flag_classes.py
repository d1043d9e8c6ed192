"""Every flag that job files may hold acts, is accepted with a reason, or is refused with one.

`upstream_flags.json` has the names, kinds and defaults that users know.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from program_runner import PACKAGE, Environment

UPSTREAM: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "upstream_flags.json").read_text())
OWN = {"exchange_blocks", "result_json"}

CLASSES = """
import json
from tf_cnn_benchmarks.flags_without_effect import ACCEPTED, REFUSED
from tf_cnn_benchmarks.params import define_flags, flag_fields
values = define_flags()
kinds = {name: type(values[name].parser).__name__ for name in values}
defaults = {name: values[name].default for name in values}
reasons = [{name: flag.reason for name, flag in table.items()} for table in (ACCEPTED, REFUSED)]
print(json.dumps([list(flag_fields()), *reasons, kinds, defaults]))
"""
PARSERS = {
    "string": {"ArgumentParser"},
    "enum": {"ArgumentParser"},
    "boolean": {"BooleanParser"},
    "integer": {"IntegerParser"},
    "float": {"FloatParser"},
    "list": {"ListParser"},
}
CHANGED = {
    "variable_consistency": "relaxed",
    "network_topology": "gcp_v100",
    "trt_mode": "INT8",
    "debugger": "localhost:7007",
}
"""Another valid value of flags whose kind does not give one."""


@pytest.fixture(scope="module")
def classes(env: Environment) -> tuple[list[str], dict[str, str], dict[str, str], Any, Any]:
    honoured, accepted, refused, kinds, defaults = env.evaluate(CLASSES)
    return honoured, accepted, refused, kinds, defaults


def test_every_flag_is_in_one_class(classes: Any) -> None:
    honoured, accepted, refused, _, _ = classes
    found = [*honoured, *accepted, *refused]
    assert len(found) == len(set(found))
    assert set(found) == set(UPSTREAM) | OWN
    assert all(len(reason) > 20 for reason in (accepted | refused).values())


def test_kinds_and_defaults_are_those_users_know(classes: Any) -> None:
    *_, kinds, defaults = classes
    for name, flag in UPSTREAM.items():
        assert kinds[name] in PARSERS[flag["kind"]], name
        assert defaults[name] == flag["default"], name


def changed(name: str) -> str:
    flag = UPSTREAM[name]
    if flag["kind"] == "boolean":
        return f"--{'no' if flag['default'] else ''}{name}"
    if flag["kind"] in ("integer", "float"):
        return f"--{name}={(flag['default'] or 0) + 1}"
    return f"--{name}={CHANGED.get(name, 'host:1')}"


def parse_all(env: Environment, lines: list[list[str]]) -> list[dict[str, Any]]:
    """The error, or the notes, of each command line."""
    code = """
import json, sys
from tf_cnn_benchmarks.errors import BenchmarkError
from tf_cnn_benchmarks.notes import notes
from tf_cnn_benchmarks.params import parse
found = []
for flags in json.loads(sys.argv[1]):
    try:
        found.append({"error": None, "notes": notes(parse(["x", *flags]), device="cpu")})
    except BenchmarkError as error:
        found.append({"error": str(error), "notes": []})
print(json.dumps(found))
"""
    return list(env.evaluate(code, json.dumps(lines)))


def test_defaults_are_accepted_in_silence(env: Environment) -> None:
    """One by one, and all together."""
    lines = []
    for name, flag in UPSTREAM.items():
        default = flag["default"]
        if default is None:
            continue
        text = ",".join(default) if isinstance(default, list) else default
        lines.append([f"--{name}={str(text).lower() if isinstance(text, bool) else text}"])
    lines.append([flags[0] for flags in lines])
    assert len(lines) > 100
    for flags, found in zip(lines, parse_all(env, lines), strict=True):
        assert found == {"error": None, "notes": []}, flags


def test_every_value_users_know_is_recognised(env: Environment) -> None:
    lines = [[f"--{name}={value}"] for name, flag in UPSTREAM.items() for value in flag.get("values", [])]
    lines += [
        ["--variable_update=replicated", f"--all_reduce_spec={s}"] for s in ("nccl", "psgpu", "xring#2")
    ]
    assert len(lines) > 25
    for flags, found in zip(lines, parse_all(env, lines), strict=True):
        assert not str(found["error"]).startswith("unknown"), flags


def test_what_changes_nothing_says_why_and_what_is_refused_too(env: Environment, classes: Any) -> None:
    _, accepted, refused, _, _ = classes
    notes = parse_all(env, [[changed(name)] for name in accepted])
    for (name, reason), found in zip(accepted.items(), notes, strict=True):
        assert found == {"error": None, "notes": [f"--{name} changes nothing: {reason}"]}
    errors = parse_all(env, [[changed(name)] for name in refused])
    for (name, reason), found in zip(refused.items(), errors, strict=True):
        assert found["error"] == f"--{name}: {reason}"


def test_the_readme_lists_the_classes(classes: Any) -> None:
    honoured, accepted, refused, _, _ = classes
    text = (PACKAGE / "README.md").read_text()
    parts = re.split(r"^### ", text, flags=re.MULTILINE)
    (acting,) = (part for part in parts if part.startswith("Flags that act\n"))
    assert sorted(re.findall(r"`(\w+)`", acting.split("\n\n", 2)[2].split("\n#")[0])) == sorted(honoured)
    for title, reasons in (("Flags that change nothing\n", accepted), ("Flags that are refused\n", refused)):
        (part,) = (part for part in parts if part.startswith(title))
        rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", part.split("\n#")[0], flags=re.MULTILINE))
        assert rows == {name: reason.replace("|", "\\|") for name, reason in reasons.items()}


def test_notes_reach_standard_error_once(tf_env: Environment) -> None:
    """By the program itself, for flags without effect and for flags that act on something else."""
    flags = ["--staged_vars", "--gpu_kt_max_bytes=5", "--ml_perf", "--distortions", "--horovod_device=cpu"]
    (run,) = tf_env.benchmarks(
        [*flags, "--data_name=digits", "--num_batches=1", "--num_warmup_batches=0", "--gradient_repacking=2"]
    )
    notes = [line.partition(": ")[2] for line in run.ok().err.splitlines() if line.startswith("tf_cnn_")]
    assert notes[0].startswith("--staged_vars changes nothing: ")
    assert sorted(note.split(" ")[0] for note in notes[1:]) == sorted(
        ["--gpu_kt_max_bytes", "--ml_perf", "--distortions", "--horovod_device", "--gradient_repacking"]
    )
    assert not any(note in run.out for note in notes)


def test_the_commands_of_the_readme_that_users_know(tf_env: Environment) -> None:
    """With fewer steps, a smaller model, and CPUs in the place of GPUs."""
    small = ["--device=cpu", "--num_batches=2", "--num_warmup_batches=1", "--batch_size=4"]
    first = "--num_gpus=1 --batch_size=32 --model=resnet50 --variable_update=parameter_server"
    tip = (
        "--nodistortions --gradient_repacking=8 --optimizer=momentum --use_fp16 --variable_update=replicated "
        "--all_reduce_spec=nccl"
    )
    plain, replicated = tf_env.benchmarks(
        [*first.split(), *small, "--model=lenet"],
        [*tip.split(), *small, "--num_gpus=2", "--model=resnet20", "--data_name=cifar10"],
    )
    assert "total images/sec: " in plain.ok().out and not plain.err
    assert "AllReduce:   xring\n" in replicated.ok().out and "total images/sec: " in replicated.out
    half, note = replicated.err.splitlines()
    assert "--use_fp16: " in half and "float32" in half
    assert "--all_reduce_spec=nccl" in note and "xring is taken instead" in note
