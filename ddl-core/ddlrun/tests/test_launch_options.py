"""The command line: every spelling, the start of the program, errors that help."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest
from ddlrun.command_line.options import OPTIONS, SECTIONS, Option, Options
from ddlrun.command_line.parser import help_text, parse
from ddlrun.command_line.rank_range import RankRange
from ddlrun.errors import LaunchError
from hypothesis import given
from hypothesis import strategies as st

VALUES = {
    "count": ("3", 3),
    "ranks": ("2:4", RankRange(2, 4)),
    "seconds": ("2.5", 2.5),
    "text": ("-word", "-word"),
    "mode": ("b:4x2", "b:4x2"),
    "hosts": ("-word", "-word"),
    "file": ("-word", "-word"),
    "folder": ("-word", "-word"),
    "bytes": ("2MB", 2_000_000),
    "list": ("-a b", ("-a b",)),
    "words": ("-np", ("-np",)),
    "variable": ("A=-b", ("A=-b",)),
    "module": ("package.part", "package.part"),
}
SPELLINGS = [(option, name) for option in OPTIONS for name in option.names if option.kind != "flag"]


@pytest.mark.parametrize("dashes", ["-", "--"])
@pytest.mark.parametrize(("option", "name"), SPELLINGS, ids=[name for _, name in SPELLINGS])
def test_value_options_in_all_forms(dashes: str, option: Option, name: str) -> None:
    first = option.values[0] if option.values else ""
    text, value = (first, first) if option.kind == "choice" else VALUES[option.kind]
    for words in ([f"{dashes}{name}", text], [f"{dashes}{name}={text}"]):
        made = parse([*words, "prog"])
        assert getattr(made, option.field) == value
        begun = ("python", "-m", "package.part") if option.kind == "module" else ()
        assert made.program == (*begun, "prog")


@pytest.mark.parametrize(
    "option", [option for option in OPTIONS if option.kind == "flag"], ids=lambda o: o.field
)
def test_flags(option: Option) -> None:
    for name in option.names:
        for word in (f"-{name}", f"--{name}", f"--{name.replace('-', '_')}"):
            assert getattr(parse([word, "prog"]), option.field) is True
    assert parse([f"-{option.names[0]}"] * 2 + ["prog"]) == parse([f"-{option.names[0]}", "prog"])
    with pytest.raises(LaunchError, match="takes no value"):
        parse([f"-{option.names[0]}=1", "prog"])


def test_number_of_ranks() -> None:
    assert parse(["-np", "3", "prog"]).np == 3
    assert parse(["-np", "3:3", "prog"]).np == RankRange(3, 3)
    for text in ("4:2", "0:2", "2:", ":2", "1:2:3", "a:2", "2:1000000000000", "١:٢", "-1:2"):
        with pytest.raises(LaunchError, match="no range of ranks"):
            parse(["-np", text, "prog"])


def test_program_starts_at_the_first_word_that_is_no_option() -> None:
    made = parse(["-H", "a,b", "python", "train.py", "--np", "9", "-m", "x"])
    assert made.host == "a,b"
    assert made.np is None and made.mode is None
    assert made.program == ("python", "train.py", "--np", "9", "-m", "x")
    assert parse(["-np", "2", "--", "-odd"]).program == ("-odd",)


def test_a_module_ends_the_options() -> None:
    begun = ("python", "-m", "a.b")
    assert parse(["-np", "2", "--module=a.b", "--np", "3", "--", "-hots"]).program == (
        *begun,
        "--np",
        "3",
        "--",
        "-hots",
    )
    assert parse(["-module", "a.b", "--module", "c"]).program == (*begun, "--module", "c")
    # as a value, and behind the start of the program, it is a word as others
    made = parse(["-mpiarg", "-module", "-np", "2", "p", "--module", "c"])
    assert (made.mpiarg, made.np, made.program) == (("-module",), 2, ("p", "--module", "c"))
    assert parse(["--", "-module", "a.b"]).program == ("-module", "a.b")


def test_the_line_for_the_image_means_the_same() -> None:
    line = "-image f.sif -m b:2 -imagearg -np -mpiarg --x -mpiarg= -x A=B -prefix --nproc_per_node=2"
    for end in (["p", "-image", "x"], ["--", "-odd"], ["-module", "a.b", "-image", "x"]):
        made = parse([*line.split(), *end])
        assert parse(made.inside) == replace(made, image=None, imagearg=())
        assert parse(made.inside).inside == made.inside


def test_the_original_spellings() -> None:
    made = parse(shlex.split("-m b:4x2 -ddlarg -a -ddloption -b -racks 1 -mpiarg -c -tcp -v p"))
    assert made == Options(
        mode="b:4x2", ddlarg=("-a", "-b"), racks=1, mpiarg=("-c",), tcp=True, verbose=True, program=("p",)
    )


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        ("-timeout 0.5", "timeout", 0.5),
        ("-bytes 1", "bytes", 1),
        ("-bytes 1000TB", "bytes", 10**15),
    ],
)
def test_the_ends_of_a_range_are_in_it(words: str, field: str, value: float) -> None:
    assert getattr(parse([*words.split(), "p"]), field) == value


@pytest.mark.parametrize("text", ["0", "0.4", "1001TB"])
def test_sizes_outside_of_the_range(text: str) -> None:
    with pytest.raises(LaunchError, match="is not a size from 1 byte to 1000 TB"):
        parse(["-bytes", text, "p"])


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("-np 0 p", ["-np", "'0'"]),
        ("-np ２ p", ["whole number"]),
        ("-np 99999999999999999999 p", ["whole number"]),
        ("-np -1 p", ["whole number"]),
        ("-timeout nan p", ["seconds"]),
        ("-timeout 0 p", ["seconds"]),
        ("-hots a p", ["unknown option -hots", "did you mean", "-rankfile"]),
        ("-np", ["-np needs a value"]),
        ("-np 2", ["no program to start", "ddlrun -np 2 python train.py"]),
        ("", ["no program to start"]),
        ("-np 2 -np 3 p", ["given twice", "2", "3"]),
        ("-H a -hostfile f p", ["-host and -hostfile exclude"]),
        ("-rf f -np 2 p", ["-rankfile already places"]),
        ("-no_ddloptions -m p p", ["excludes"]),
        ("---np 2 p", ["unknown option ---np"]),
        # neither letters of several options nor a value without a blank
        ("-qv p", ["unknown option -qv"]),
        ("-n2 p", ["unknown option -n2"]),
        ("-xA=B p", ["unknown option -xA"]),
        ("--max_restart 2 p", ["unknown option --max_restart", "did you mean -max-restarts?"]),
        ("-mpiarg -hots --hots p", ["unknown option --hots"]),
        ("-completion dos", ["'dos' is none of bash, zsh, fish"]),
        ("-launcher ssh p", ["'ssh' is none of mpirun, srun, jsrun, flux"]),
        ("-module", ["-module needs a value"]),
    ],
)
def test_errors_name_the_word_and_the_remedy(line: str, words: list[str]) -> None:
    with pytest.raises(LaunchError) as caught:
        parse(line.split())
    assert str(caught.value).startswith("[ERROR DDL-2-0] ")
    assert caught.value.exit_code == 2
    for word in words:
        assert word in str(caught.value)


def test_help_names_every_option() -> None:
    text = help_text(110)
    for option in OPTIONS:
        for name in option.names:
            assert f"-{name}" in text
        assert option.help in text
    assert max(map(len, text.splitlines())) <= 110
    for title in SECTIONS:
        assert f"\n{title}:\n" in text
    # the same words on a narrower terminal
    narrow = help_text(80)
    assert max(map(len, narrow.splitlines())) <= 80
    assert "".join(narrow.split()) == "".join(text.split())


@given(st.lists(st.text(max_size=12), max_size=6))
def test_any_words_are_parsed_or_refused(words: list[str]) -> None:
    """No other exception, and what is taken for the program is an end of what was given."""
    try:
        made = parse(words)
    except LaunchError as error:
        assert error.exit_code == 2
        return
    assert made.help or made.version or made.program == tuple(words[len(words) - len(made.program) :])


@given(st.lists(st.text(max_size=20), max_size=5))
def test_the_programs_words_are_never_touched(words: list[str]) -> None:
    assert parse(["-np", "2", "prog", *words]).program == ("prog", *words)
