"""Hosts from -H, hostfiles and rankfiles; errors name the line."""

from __future__ import annotations

from pathlib import Path

import pytest
from ddlrun.errors import LaunchError
from ddlrun.hosts import hostfile
from ddlrun.hosts.host_list import Host, parse_host_option
from hypothesis import given
from hypothesis import strategies as st

names = st.from_regex(r"[a-zA-Z][a-zA-Z0-9]{0,6}(-[a-z0-9]{1,3})?", fullmatch=True)
slots = st.none() | st.integers(1, 999)


@given(st.lists(st.tuples(names, slots), min_size=1, max_size=12, unique_by=lambda pair: pair[0]), st.data())
def test_hostfile_reads_what_was_written(hosts: list[tuple[str, int | None]], data: st.DataObject) -> None:
    lines = []
    for name, count in hosts:
        forms = (
            [f"{name}"]
            if count is None
            else [f"{name} slots={count}", f"{name}:{count}", f" {name}  slots = {count} # c"]
        )
        lines.append(data.draw(st.sampled_from(forms)))
        lines.append(data.draw(st.sampled_from(["", "# comment", "   "])))
    assert hostfile.parse_hostfile("\n".join(lines), "f") == tuple(Host(*pair) for pair in hosts)


def test_one_host_a_line_adds_up() -> None:
    assert hostfile.parse_hostfile("b\na\nb\n", "f") == (Host("b", 2), Host("a", None))
    assert hostfile.parse_hostfile("a slots=2\nb\na slots=3 max_slots=9\n", "f") == (
        Host("a", 5),
        Host("b", None),
    )


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        ("a\nb slots=0\n", 2, "'0' is no number of slots"),
        ("a\n\n# x\nb slots=x\n", 4, "'x' is no number of slots"),
        ("a slots\n", 1, "'slots' is not understood"),
        ("a slots=1 slots=2\n", 1, "given twice"),
        ("a:2 slots=2\n", 1, "given twice"),
        ("a\n-oProxyCommand=x\n", 2, "is no host name"),
        ("a;reboot\n", 1, "is no host name"),
        ("$(id)\n", 1, "is no host name"),
        ("root@a\n", 1, "~/.ssh/config"),
        ("a user=x\n", 1, "'user=x' is not understood"),
    ],
)
def test_hostfile_errors_name_the_line(text: str, line: int, word: str) -> None:
    with pytest.raises(LaunchError) as caught:
        hostfile.parse_hostfile(text, "my.hosts")
    assert f"my.hosts, line {line};" in str(caught.value)
    assert word in str(caught.value)
    assert str(caught.value).startswith("[ERROR DDL-2-2] ")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    for path, reason in (
        (tmp_path / "absent", "No such file"),
        (tmp_path, "directory"),
        (binary, "not a text file"),
    ):
        with pytest.raises(LaunchError, match=reason):
            hostfile.read(str(path), "hostfile")
    with pytest.raises(LaunchError, match="names no host"):
        hostfile.parse_hostfile("# nothing\n", "f")


def test_files_that_are_too_large(tmp_path: Path) -> None:
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(64 << 20)
    assert len(hostfile.read(str(large), "hostfile")) == 64 << 20
    with large.open("ab") as file:
        file.write(b"\n")
    with pytest.raises(LaunchError, match="larger than 64 MiB"):
        hostfile.read(str(large), "hostfile")


def test_host_option() -> None:
    assert parse_host_option("a:2,b,c:1") == (Host("a", 2), Host("b", None), Host("c", 1))
    assert parse_host_option("a,a,b") == (Host("a", 2), Host("b", None))
    for text in ("", "a,", "a:0", "a:", "a:1:2", "a b", "-x", "a:٣", "a\nb"):
        with pytest.raises(LaunchError):
            parse_host_option(text)


@given(st.text(max_size=30))
def test_no_text_becomes_a_dangerous_host(text: str) -> None:
    """What passes consists of harmless characters and does not begin with a dash."""
    for parser in (parse_host_option, lambda given: hostfile.parse_hostfile(given, "f")):
        try:
            hosts = parser(text)
        except LaunchError:
            continue
        for host in hosts:
            assert host.name[0].isalnum()
            assert all(c.isascii() and (c.isalnum() or c in "._-") for c in host.name)


def test_rankfile() -> None:
    text = "rank 1=b slot=0\nrank 0=a slot=0:0-9\nrank 2 = b slots=1,2\n"
    assert hostfile.parse_rankfile(text, "f") == (Host("a", 1), Host("b", 2))
    for bad, word in (
        ("rank 0=a slot=0\nrank 0=b slot=0\n", "line 2; "),
        ("rank 1=a slot=0\n", "rank 0 has no line"),
        ("rank 0=a\n", "line 1"),
        ("rank 0=-x slot=0\n", "is no host name"),
        ("", "rank 0 has no line"),
    ):
        with pytest.raises(LaunchError) as caught:
            hostfile.parse_rankfile(bad, "f")
        assert word in str(caught.value)
