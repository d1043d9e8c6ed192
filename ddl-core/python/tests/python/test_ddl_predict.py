"""Predictions: the published NMT run, what was measured on emulated hosts, wrong descriptions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prediction_process import PredictionError, PredictionProcess

ROOT = Path(__file__).resolve().parents[4]
SCHEMA = json.loads((ROOT / "docs/reference/cluster.schema.json").read_text())
SHIPPED = {
    path.stem: path
    for path in sorted((ROOT / "ddl-core/python/ddl/clusters").glob("*.json"))
    if not path.name.endswith(".steps.json")
}
NMT = {1: 0.36, 2: 0.45, 4: 0.56, 8: 0.68, 12: 0.69, 16: 0.70}
FITTED = (1, 2, 8)
MIB = 1 << 20


@pytest.fixture(scope="module")
def predict(mpirun: Any) -> Iterator[PredictionProcess]:
    process = PredictionProcess(mpirun.python)
    yield process
    process.close()


def times(result: dict[str, Any], algorithm: str = "planned", key: str = "allreduce_s") -> dict[int, float]:
    return {row["ranks"]: row[key] for row in result["predictions"] if row["algorithm"] == algorithm}


def tier(name: str, members: int | list[int], bandwidth: str, **more: str) -> dict[str, Any]:
    return {"name": name, "members": members, "bandwidth": bandwidth, "latency": "100 us", **more}


def emulated(ranks: int | list[int], *hosts_and_racks: int) -> dict[str, Any]:
    """Hosts of validation/ddl_validate/cluster: links of 1 Gbit/s, uplinks of 200 Mbit/s, as payload."""
    tiers = [tier("host", ranks, "7.5 GB/s", shared_by="memory")]
    for name, members, rate in zip(
        ("rack", "cluster"), hosts_and_racks, ("956 Mbit/s", "191 Mbit/s"), strict=False
    ):
        tiers.append(tier(name, members, rate))
    return {"version": 1, "tiers": tiers}


def test_three_steps_of_nmt_tell_the_others(predict: PredictionProcess) -> None:
    steps = {
        "version": 1,
        "bytes": "717 MB",
        "steps": [{"ranks": ranks, "time": NMT[ranks]} for ranks in FITTED],
    }
    result = predict("ac922-4-ethernet", ranks=list(NMT), steps=steps)
    predicted = times(result, key="step_s")
    for ranks in FITTED:
        assert predicted[ranks] == pytest.approx(NMT[ranks], rel=1e-4)
    for ranks in set(NMT) - set(FITTED):
        assert predicted[ranks] == pytest.approx(NMT[ranks], rel=0.1)
    # Links reach a part of their bandwidth, and no more than all of it.
    calibration = result["calibration"]
    assert 0.05 < calibration["inside_efficiency"] < 1 and 0.2 < calibration["network_efficiency"] < 1


def test_shipped_nmt_steps_are_the_published_ones_and_fit_three(predict: PredictionProcess) -> None:
    result = predict("ac922-4-ethernet", steps="nmt-ac922")
    steps = result["calibration"]["steps"]
    assert {step["ranks"]: step["measured_s"] for step in steps} == pytest.approx(NMT)
    assert [step["ranks"] for step in steps if step["fitted"]] == list(FITTED)
    assert all(abs(step["off"]) < 0.1 for step in steps)
    assert times(result, key="step_s") == pytest.approx({s["ranks"]: s["predicted_s"] for s in steps})


@pytest.mark.parametrize(
    ("cluster", "ddl_s", "gloo_s", "bound"),
    [
        (emulated(2, 4), 0.868, 1.00, "rack"),
        (emulated(2, 2, 2), 2.85, 5.17, "cluster"),
        (emulated(1, 2, 4), 4.33, 5.18, "cluster"),
        (emulated([3, 2, 2, 1], 2, 2), 2.93, 5.25, "cluster"),
    ],
    ids=["4x2 in 1 rack", "4x2 in 2 racks", "8x1 in 4 racks", "3+2+2+1 in 2 racks"],
)
def test_what_was_measured_on_emulated_hosts(
    predict: PredictionProcess, cluster: dict[str, Any], ddl_s: float, gloo_s: float, bound: str
) -> None:
    result = predict(cluster, 64 * MIB, [8])
    assert times(result)[8] == pytest.approx(ddl_s, rel=0.15)
    assert times(result, "ring")[8] == pytest.approx(gloo_s, rel=0.15)
    assert times(result, key="bound_by")[8] == bound


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_clusters(predict: PredictionProcess, name: str) -> None:
    result = predict(name)
    cluster = result["cluster"]
    assert cluster["name"] == name and cluster["ranks"] == sum(cluster["host_ranks"])
    assert {row["algorithm"] for row in result["predictions"]} == set(result["algorithms"])
    efficiency = [*times(result, key="efficiency").values()]
    assert efficiency[0] == 1 and all(0 < part <= 1 for part in efficiency)
    text = json.loads(SHIPPED[name].read_text())
    assert set(text) <= set(SCHEMA["properties"])
    assert all(tier["source"] for tier in text["tiers"]), "figures say where they come from"


def test_summit_has_954_hosts_of_6(predict: PredictionProcess) -> None:
    cluster = predict("summit", ranks=[5724])["cluster"]
    assert cluster["host_ranks"] == [6] * 954


def test_units_and_numbers_mean_the_same(predict: PredictionProcess) -> None:
    one, other = emulated(2, 4), emulated(2, 4)
    other["tiers"][1] |= {"bandwidth": 119.5e6, "latency": 100 * 1e-6}
    assert predict(one, MIB) == predict(other, MIB)


def place(predict: PredictionProcess, changes: dict[str, Any]) -> str:
    with pytest.raises(PredictionError) as caught:
        predict(emulated(2, 4) | changes, MIB)
    return str(caught.value)


def test_errors_name_the_place(predict: PredictionProcess, tmp_path: Path) -> None:
    assert "at /tiers/0/bandwidth" in place(predict, {"tiers": [tier("host", 2, "1 Gb/s")]})
    bad = [tier("host", [1, 1], "1 GB/s", shared_by="memory"), tier("x", [2, 0], "1 GB/s")]
    assert "at /tiers/1/members/1" in place(predict, {"tiers": bad})
    assert "at /step/compute" in place(predict, {"step": {"compute": "soon"}})
    assert "unknown key" in place(predict, {"racks": 3})
    for path in (tmp_path, tmp_path / "none.json"):
        with pytest.raises(PredictionError, match=r"cannot be read.*summit"):
            predict(path)
    binary = tmp_path / "binary.json"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PredictionError, match="cannot be read"):
        predict(binary)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=150)
@given(
    path=st.sampled_from(
        [("tiers",), ("tiers", 0), ("step",), ("overheads",), ("device",), ("version",)]
        + [
            ("tiers", 1, key)
            for key in ("name", "members", "bandwidth", "latency", "shared_by", "efficiency")
        ]
    ),
    value=JSON,
)
def test_any_value_is_taken_or_refused_with_its_place(
    predict: PredictionProcess, path: tuple[str | int, ...], value: Any
) -> None:
    description: Any = emulated(2, 4)
    at = description
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    try:
        result = predict(description, MIB)
    except PredictionError as error:
        text = str(error)
        assert re.match(r"\[ERROR DDL-1-1\] .+; in the cluster description.*; .+", text, re.DOTALL), text
    else:
        assert all(row["allreduce_s"] >= 0 for row in result["predictions"])


def test_mpi_is_not_started(mpirun: Any) -> None:
    script = "import ddl; ddl.predict('summit', 1000); print('started', ddl.is_initialized())"
    # With this component missing MPI_Init would end the process.
    run = mpirun.alone(script, env={"DDL_AUTO_INIT": "0", "OMPI_MCA_pml": "nosuch"})
    assert run.status == 0 and run.lines("started ") == ["False"], run.output
