"""The command line: one table of options, read by the parser, the help and the documentation's test.

Both dashes work for every option (`-mode`, `--mode`), as do `-mode p` and `-mode=p`. The first word that is
neither an option nor an option's value starts the program; everything after it is the program's. A general
parser was not taken: its rules for single-dash long names and for values that begin with a dash differ from
these.
"""

import re
import shlex
from dataclasses import dataclass, field
from typing import Any

from ..errors import Code, LaunchError


@dataclass(frozen=True)
class Option:
    """One option. kind: flag, text, choice (its metavar lists the values), list (may be repeated), count (a
    whole number >= 1), bytes (a size) or seconds (> 0), or module (of Python).
    """

    names: tuple[str, ...]
    kind: str
    metavar: str
    help: str

    @property
    def field(self) -> str:
        return self.names[0].replace("-", "_")


SECTIONS: dict[str, tuple[Option, ...]] = {
    "Hosts and ranks": (
        Option(("host", "H"), "text", "HOST[:SLOTS],…", "start on these hosts, SLOTS ranks on each"),
        Option(
            ("hostfile",),
            "text",
            "FILE",
            "hosts of a file: `host`, `host:SLOTS` or `host slots=SLOTS` a line",
        ),
        Option(
            ("rankfile", "rf"), "text", "FILE", "place every rank by hand: `rank 0=host slot=0-3`; few checks"
        ),
        Option(("np", "n"), "count", "RANKS", "number of ranks (default: all slots)"),
        Option(
            ("accelerators", "nproc-per-node"),
            "count",
            "N",
            "ranks on each host (default: its slots or its GPUs, else 1)",
        ),
        Option(("nnodes",), "count", "N", "take the first N of the hosts (default: all)"),
        Option(("exclude",), "text", "HOST,…", "leave these hosts out"),
        Option(("cores",), "count", "N", "cores of each rank (default: all of the host, shared out evenly)"),
    ),
    "Topology and DDL": (
        Option(
            ("mode", "m"), "text", "L[:AxBxCxD]", "algorithms p b n r m c, and the tiers' sizes (default: p)"
        ),
        Option(("nodes",), "count", "N", "hosts in a rack (default: all)"),
        Option(("racks",), "count", "N", "racks in an aisle (default: 1)"),
        Option(("aisles",), "count", "N", "aisles (default: 1)"),
        Option(("ddlarg", "ddloption"), "list", "ARG", 'add ARG to DDL_OPTIONS, such as "-dump_iter 10"'),
        Option(("no-ddloptions",), "flag", "", "leave DDL_OPTIONS alone"),
    ),
    "Starting": (
        Option(
            ("launcher",),
            "choice",
            "mpirun|srun|jsrun|flux",
            "who starts the ranks (default: mpirun; others inside their jobs)",
        ),
        Option(("mpiarg",), "list", "ARGS", "hand ARGS to the launcher; one word, or several in quotes"),
        Option(("image",), "text", "FILE.sif", "run in this image of Singularity or Apptainer, on all hosts"),
        Option(
            ("imagearg",), "list", "ARGS", "hand ARGS to `singularity exec`; one word, or several in quotes"
        ),
        Option(("x",), "list", "NAME[=VALUE]", "hand a variable of the environment to all ranks"),
        Option(("module",), "module", "MODULE", "run `python -m MODULE`; what follows are its arguments"),
        Option(
            ("wdir",),
            "text",
            "DIR",
            "start the ranks in this folder, which all hosts have (default: this one)",
        ),
        Option(("tcp",), "flag", "", "plain TCP between hosts, no other fabric"),
        Option(("interface",), "text", "NAME", "use this network interface between hosts, such as ib0"),
        Option(
            ("ssh-port",), "count", "PORT", "reach hosts at this port of ssh (default: that of ~/.ssh/config)"
        ),
        Option(("ssh-identity",), "text", "FILE", "log in with this key (default: those of ssh)"),
        Option(("timeout",), "seconds", "SECONDS", "end the job after this time, with exit code 124"),
        Option(
            ("grace",), "seconds", "SECONDS", "give the ranks so much time to end after SIGTERM (default: 1)"
        ),
        Option(("check",), "flag", "", "only look at the hosts and print what was found; starts nothing"),
        Option(("skip-checks",), "flag", "", "do not look at the hosts before the start"),
    ),
    "Failures": (
        Option(("max-restarts",), "count", "N", "start again, at most N times, when a rank or host fails"),
        Option(
            ("min-hosts",), "count", "M", "restart only when at least M hosts can take part (default: all)"
        ),
        Option(("checkpoint-dir",), "text", "DIR", "tell the script where its checkpoints are"),
        Option(
            ("flight-record",),
            "text",
            "DIR",
            "shared folder for the ranks' last calls (default: fetched by ssh)",
        ),
    ),
    "Output": (
        Option(("tag-output", "prefix"), "flag", "", "put [RANK] before each line; with -v [RANK HOST]"),
        Option(("output-folder",), "text", "DIR", "also write what each rank prints to DIR/rank-N.log"),
    ),
    "Predicting": (
        Option(
            ("simulate",),
            "text",
            "CLUSTER",
            "predict times on a described cluster (file, shipped name, `list`)",
        ),
        Option(
            ("bytes",),
            "bytes",
            "SIZE",
            "of an all-reduce, such as 717MB (default: the described one)",
        ),
        Option(("ranks",), "text", "N,…|all", "sizes of the job (default: 1, 2, 4, … and whole hosts)"),
        Option(
            ("calibrate",),
            "text",
            "STEPS",
            "fit the cluster to measured step times first (file, shipped name)",
        ),
        Option(("picture",), "text", "FILE.svg", "draw the predictions"),
    ),
    "Telling": (
        Option(("dry-run",), "flag", "", "show hosts, placement and the mpirun line; start nothing"),
        Option(("json",), "flag", "", "what -dry-run or -simulate shows, as JSON; starts nothing"),
        Option(("show-topology",), "flag", "", "draw hosts, cores, GPUs and ranks as DDL will see them"),
        Option(("topology-picture",), "text", "FILE.svg", "write that drawing to a file; starts nothing"),
        Option(("doctor",), "flag", "", "tell whether this environment, or image, fits this machine"),
        Option(("read-flight-record",), "text", "DIR", "tell from a job's flight records where it stopped"),
        Option(("quiet", "q"), "flag", "", "print what the ranks print, warnings and errors, nothing else"),
        Option(("verbose", "v"), "flag", "", "tell each step; at the end what DDL chose"),
        Option(("completion",), "text", "SHELL", "print the completion for bash, zsh or fish"),
        Option(("version",), "flag", "", "print the versions of DDL and MPI"),
        Option(("help", "h"), "flag", "", "print this text"),
    ),
}

_BY_NAME = {name: option for section in SECTIONS.values() for option in section for name in option.names}


@dataclass(frozen=True)
class Options:
    """What the user asked for. None and empty: not said."""

    host: str | None = None
    hostfile: str | None = None
    rankfile: str | None = None
    np: int | None = None
    accelerators: int | None = None
    nnodes: int | None = None
    exclude: str | None = None
    cores: int | None = None
    mode: str | None = None
    nodes: int | None = None
    racks: int | None = None
    aisles: int | None = None
    ddlarg: tuple[str, ...] = ()
    no_ddloptions: bool = False
    launcher: str | None = None
    mpiarg: tuple[str, ...] = ()
    image: str | None = None
    imagearg: tuple[str, ...] = ()
    x: tuple[str, ...] = ()
    module: str | None = None
    wdir: str | None = None
    tcp: bool = False
    interface: str | None = None
    ssh_port: int | None = None
    ssh_identity: str | None = None
    timeout: float | None = None
    grace: float | None = None
    check: bool = False
    skip_checks: bool = False
    max_restarts: int | None = None
    min_hosts: int | None = None
    checkpoint_dir: str | None = None
    flight_record: str | None = None
    tag_output: bool = False
    output_folder: str | None = None
    simulate: str | None = None
    bytes: int | None = None
    ranks: str | None = None
    calibrate: str | None = None
    picture: str | None = None
    dry_run: bool = False
    json: bool = False
    show_topology: bool = False
    topology_picture: str | None = None
    doctor: bool = False
    read_flight_record: str | None = None
    quiet: bool = False
    verbose: bool = False
    completion: str | None = None
    version: bool = False
    help: bool = False
    program: tuple[str, ...] = field(default=())
    #: The whole command line without -image and -imagearg.
    inside: tuple[str, ...] = field(default=(), compare=False)

    def launcher_words(self) -> list[str]:
        """What -mpiarg hands to the launcher."""
        return _split("-mpiarg", self.mpiarg)

    def image_words(self) -> list[str]:
        """What -imagearg hands to the program that enters the image."""
        return _split("-imagearg", self.imagearg)

    @property
    def shows_topology(self) -> bool:
        return self.show_topology or self.topology_picture is not None

    @property
    def predicting(self) -> bool:
        """Whether an option of a prediction was given."""
        return any(
            value is not None
            for value in (self.simulate, self.bytes, self.ranks, self.calibrate, self.picture)
        )

    @property
    def grouped(self) -> bool:
        """Whether the user said how hosts are grouped."""
        return bool(self.nodes or self.racks or self.aisles)


def _split(name: str, texts: tuple[str, ...]) -> list[str]:
    words: list[str] = []
    for text in texts:
        try:
            words += shlex.split(text)
        except ValueError as error:
            raise usage(f"{name} {text!r} cannot be read: {error}", "close the quotes") from None
    return words


def usage(what: str, remedy: str = "`ddlrun --help` lists the options") -> LaunchError:
    return LaunchError(Code.USAGE, what, "on the command line", remedy, exit_code=2)


def _spelling(option: Option) -> str:
    return "/".join(f"-{name}" for name in reversed(option.names))


def _find(word: str) -> Option:
    name = word.lstrip("-").replace("_", "-")
    if name in _BY_NAME and not word.startswith("---"):
        return _BY_NAME[name]
    import difflib

    close = difflib.get_close_matches(name, _BY_NAME, n=1)
    meant = f"did you mean -{close[0]}? " if close else ""
    valid = " ".join(_spelling(option) for section in SECTIONS.values() for option in section)
    raise usage(f"unknown option {word}", f"{meant}valid options: {valid}")


def _value(option: Option, word: str, text: str) -> Any:
    if option.kind == "count":
        # isdecimal also accepts digits of other scripts, and int() of a very long text is refused with a
        # traceback.
        if not (text.isascii() and text.isdecimal() and len(text) < 10 and int(text) >= 1):
            raise usage(f"{word} {text!r} is not a whole number of at least 1")
        return int(text)
    if option.kind == "seconds":
        try:
            seconds = float(text)
        except ValueError:
            seconds = 0.0
        if not 0 < seconds < 1e9:
            raise usage(f"{word} {text!r} is not a time in seconds greater than 0")
        return seconds
    if option.kind == "choice" and text not in option.metavar.split("|"):
        raise usage(f"{word} {text!r} is none of {option.metavar.replace('|', ', ')}")
    if option.kind == "bytes":
        return _bytes(word, text)
    if option.kind == "module" and not _MODULE.fullmatch(text):
        raise usage(f"{word} {text!r} is no name of a module", "write it as in `python -m`: package.module")
    if not text and option.names[0] not in ("mpiarg", "imagearg"):
        raise usage(f"{word} has an empty value")
    if "\0" in text:
        raise usage(f"{word} has a value with a NUL character")
    return text


_MODE = re.compile(r".(:.*)?")
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_INTERFACE = re.compile(r"[A-Za-z0-9_.@:-]{1,15}")
_UNITS = {"": 1, "B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12} | {
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
}


def _bytes(word: str, text: str) -> int:
    match = re.fullmatch(r"([0-9.]{1,20}) ?([A-Za-z]*)", text)
    try:
        size = round(float(match[1]) * _UNITS[match[2]]) if match else 0
    except (KeyError, ValueError):
        size = 0
    if not 1 <= size <= 10**15:
        raise usage(
            f"{word} {text!r} is not a size from 1 byte to 1000 TB",
            f"write a number, or one with a unit such as 717MB: {' '.join(filter(None, _UNITS))}",
        )
    return size


def parse(words: list[str]) -> Options:
    """Options of a command line without the program's name. Raises LaunchError (USAGE)."""
    said: dict[str, Any] = {}
    inside: list[str] = []
    at = 0
    while at < len(words):
        word, begun = words[at], at
        if word == "--":
            at += 1
            break
        if not word.startswith("-") or word == "-":
            break
        at += 1
        word, equals, joined = word.partition("=")
        option = _find(word)
        if option.kind == "flag":
            if equals:
                raise usage(f"{word} takes no value")
            said[option.field] = True
            inside.append(words[begun])
            continue
        if not equals and at == len(words):
            raise usage(f"{word} needs a value: {option.metavar}")
        text = joined if equals else words[at]
        at += not equals
        if option.names[0] not in ("image", "imagearg"):
            inside += words[begun:at]
        value = _value(option, word, text)
        if option.names[0] == "mode" and not _MODE.fullmatch(text) and _MODULE.fullmatch(text):
            raise usage(
                f"{word} {text}: -m is DDL's mode, as in the original ddlrun",
                f"for Python's -m write `ddlrun --module {text}`; the modes are p b n r m c",
            )
        if option.kind == "list":
            said[option.field] = (*said.get(option.field, ()), value)
        elif said.get(option.field, value) != value:
            raise usage(f"{word} is given twice, as {said[option.field]} and as {value}")
        else:
            said[option.field] = value
        if option.kind == "module":
            break  # what follows are its arguments
    program = tuple(words[at:])
    module = said.get("module")
    if module:
        # The name of the environment's own Python, as ranks find it on PATH.
        program = ("python", "-m", module, *program)
    made = Options(
        **said, program=program, inside=(*inside, *([] if module or not program else ["--"]), *words[at:])
    )
    _check(made)
    return made


def _check(options: Options) -> None:
    if options.help or options.version or options.completion or options.doctor:
        return
    if options.read_flight_record:
        return
    if not options.program and not (options.check or options.shows_topology or options.predicting):
        raise usage("no program to start", "write it after the options: `ddlrun -np 2 python train.py`")
    sources = [f"-{name}" for name in ("host", "hostfile", "rankfile") if getattr(options, name)]
    if len(sources) > 1:
        raise usage(f"{' and '.join(sources)} exclude each other", "give the hosts in one way")
    if options.check and options.skip_checks:
        raise usage("-check and -skip-checks exclude each other", "leave one of them out")
    placing = (options.np, options.accelerators, options.cores, options.nnodes, options.exclude)
    if options.rankfile and any(placing):
        raise usage(
            "-rankfile already places every rank",
            "leave -np, -accelerators, -cores, -nnodes and -exclude out",
        )
    if options.rankfile and options.launcher not in (None, "mpirun"):
        raise usage("-rankfile places ranks for mpirun", "leave -launcher or -rankfile out")
    if options.quiet and options.verbose:
        raise usage("-quiet and -verbose exclude each other", "leave one of them out")
    if options.interface and not _INTERFACE.fullmatch(options.interface):
        raise usage(
            f"-interface {options.interface!r} is no name of a network interface", "`ip link` lists them"
        )
    if options.ssh_port and options.ssh_port > 65535:
        raise usage(f"-ssh-port {options.ssh_port} is no port", "ports end at 65535")
    if options.ssh_identity and any(c.isspace() for c in options.ssh_identity):
        # mpirun cuts the words of its ssh at blanks, and knows no quotes
        raise usage(
            f"-ssh-identity {options.ssh_identity!r} has a blank, which mpirun cannot hand to ssh",
            "name the key in ~/.ssh/config (IdentityFile), or copy it",
        )
    if options.no_ddloptions and (options.mode or options.ddlarg):
        raise usage("-no_ddloptions excludes -mode and -ddlarg", "leave one of them out")


def help_text() -> str:
    lines = [
        "usage: ddlrun [OPTIONS] PROGRAM [ARGUMENTS]",
        "",
        "Start PROGRAM as a distributed job: one process a rank, on the hosts of -H or of a hostfile, of the",
        "surrounding Slurm, LSF, PBS or Flux job, or on this machine.",
        "",
        "  ddlrun -np 2 python train.py                 two ranks here",
        "  ddlrun -H host1:4,host2:4 python train.py    four ranks on each of two hosts",
        "  ddlrun python train.py                       inside a job: on all its hosts",
        "  ddlrun -np 2 --module package.train          as `python -m package.train`",
    ]
    for title, options in SECTIONS.items():
        lines += ["", f"{title}:"]
        for option in options:
            left = ", ".join(f"-{name}" for name in reversed(option.names))
            left = f"  {left} {option.metavar}".rstrip()
            lines.append(f"{left:<34}{option.help}" if len(left) < 33 else f"{left}\n{'':<34}{option.help}")
    lines += [
        "",
        "One or two dashes, `-np 2` or `--np=2`: all the same. The first word that is no option is PROGRAM.",
        "",
    ]
    return "\n".join(lines)
