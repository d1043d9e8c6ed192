"""The command line: one table of options, from which the parser, the completion, the help and the
documentation's test are made; and what it says, as Options.
"""

import shlex
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from ..errors import Code, LaunchError
from .rank_range import RankRange

#: What an option's value is. list, words (of another program) and variable (of the environment) may be given
#: more than once; module ends the options.
Kind = Literal[
    "flag",
    "text",
    "choice",
    "list",
    "words",
    "variable",
    "count",
    "ranks",
    "seconds",
    "bytes",
    "module",
    "mode",
    "hosts",
    "file",
    "folder",
]


@dataclass(frozen=True)
class Option:
    """One option. values: those of a choice; for others some that can be listed."""

    names: tuple[str, ...]
    kind: Kind
    metavar: str
    help: str
    values: tuple[str, ...] = ()

    @property
    def field(self) -> str:
        return self.names[0].replace("-", "_")

    @property
    def spelling(self) -> str:
        return f"-{self.names[0]}"

    @property
    def repeated(self) -> bool:
        """Whether each further use adds a value."""
        return self.kind in ("list", "words", "variable")


#: Shells that have a completion.
SHELLS = ("bash", "zsh", "fish")
#: By this variable of the environment they ask for completions; the name is click's for ddlrun.
COMPLETION_VARIABLE = "_DDLRUN_COMPLETE"

SECTIONS: dict[str, tuple[Option, ...]] = {
    "Hosts and ranks": (
        Option(("host", "H"), "hosts", "HOST[:SLOTS],…", "start on these hosts, SLOTS ranks on each"),
        Option(
            ("hostfile",),
            "file",
            "FILE",
            "hosts of a file: `host`, `host:SLOTS` or `host slots=SLOTS` a line",
        ),
        Option(
            ("rankfile", "rf"), "file", "FILE", "place every rank by hand: `rank 0=host slot=0-3`; few checks"
        ),
        Option(
            ("np", "n"), "ranks", "RANKS|MIN:MAX", "number of ranks, or from MIN to MAX (default: all slots)"
        ),
        Option(
            ("accelerators", "nproc-per-node"),
            "count",
            "N",
            "ranks on each host (default: its slots or its GPUs, else 1)",
        ),
        Option(
            ("gpus",),
            "choice",
            "own|shared|none",
            "each rank its own GPU, shared ones, or none (default: own in GPU builds)",
            ("own", "shared", "none"),
        ),
        Option(("nnodes",), "count", "N", "take the first N of the hosts (default: all)"),
        Option(("exclude",), "hosts", "HOST,…", "leave these hosts out"),
        Option(("cores",), "count", "N", "cores of each rank (default: all of the host, shared out evenly)"),
    ),
    "Topology and DDL": (
        Option(
            ("mode", "m"),
            "mode",
            "L[:AxBxCxD]",
            "algorithms p b n r m c, and the tiers' sizes (default: p)",
            tuple("pbnrmc"),
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
            ("mpirun", "srun", "jsrun", "flux"),
        ),
        Option(("mpiarg",), "words", "ARGS", "hand ARGS to the launcher; one word, or several in quotes"),
        Option(("image",), "file", "FILE.sif", "run in this image of Singularity or Apptainer, on all hosts"),
        Option(
            ("imagearg",), "words", "ARGS", "hand ARGS to `singularity exec`; one word, or several in quotes"
        ),
        Option(
            ("tf1",), "flag", "", "give scripts TensorFlow 1: sessions, tf.contrib, the Keras of that time"
        ),
        Option(
            ("tf-config",),
            "choice",
            "worker|chief",
            "set TF_CONFIG: rank 0 is worker 0, or the chief",
            ("worker", "chief"),
        ),
        Option(("ps",), "count", "N", "start N parameter servers of TensorFlow beside the ranks"),
        Option(("x",), "variable", "NAME[=VALUE]", "hand a variable of the environment to all ranks"),
        Option(("module",), "module", "MODULE", "run `python -m MODULE`; what follows are its arguments"),
        Option(
            ("wdir",),
            "folder",
            "DIR",
            "start the ranks in this folder, which all hosts have (default: this one)",
        ),
        Option(("tcp", "t"), "flag", "", "plain TCP between hosts, no other fabric"),
        Option(("interface",), "text", "NAME", "use this network interface between hosts, such as ib0"),
        Option(
            ("ssh-port",), "count", "PORT", "reach hosts at this port of ssh (default: that of ~/.ssh/config)"
        ),
        Option(("ssh-identity",), "file", "FILE", "log in with this key (default: those of ssh)"),
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
        Option(("checkpoint-dir",), "folder", "DIR", "tell the script where its checkpoints are"),
        Option(
            ("flight-record",),
            "folder",
            "DIR",
            "shared folder for the ranks' last calls (default: fetched by ssh)",
        ),
    ),
    "Output": (
        Option(("tag-output", "prefix"), "flag", "", "put [RANK] before each line; with -v [RANK HOST]"),
        Option(("output-folder",), "folder", "DIR", "also write what each rank prints to DIR/rank-N.log"),
    ),
    "Predicting": (
        Option(
            ("simulate",),
            "file",
            "CLUSTER",
            "predict times on a described cluster (file, shipped name, `list`)",
            ("list",),
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
            "file",
            "STEPS",
            "fit the cluster to measured step times first (file, shipped name)",
        ),
        Option(("picture",), "file", "FILE.svg", "draw the predictions"),
    ),
    "Telling": (
        Option(("dry-run",), "flag", "", "show hosts, placement and the mpirun line; start nothing"),
        Option(("json",), "flag", "", "what -dry-run or -simulate shows, as JSON; starts nothing"),
        Option(("show-topology",), "flag", "", "draw hosts, cores, GPUs and ranks as DDL will see them"),
        Option(("topology-picture",), "file", "FILE.svg", "write that drawing to a file; starts nothing"),
        Option(("doctor",), "flag", "", "tell whether this environment, or image, fits this machine"),
        Option(("read-flight-record",), "folder", "DIR", "tell from a job's flight records where it stopped"),
        Option(("quiet", "q"), "flag", "", "print what the ranks print, warnings and errors, nothing else"),
        Option(("verbose", "v"), "flag", "", "tell each step; at the end what DDL chose"),
        Option(("completion",), "choice", "SHELL", "print the completion for bash, zsh or fish", SHELLS),
        Option(("version",), "flag", "", "print the versions of DDL and MPI"),
        Option(("help", "h"), "flag", "", "print this text"),
    ),
}

_WITH_ONE_DASH = ("-bind-to", "-map-by", "-rank-by")
OPTIONS = tuple(option for section in SECTIONS.values() for option in section)


@dataclass(frozen=True)
class Options:
    """What the user asked for. None and empty: not said."""

    host: str | None = None
    hostfile: str | None = None
    rankfile: str | None = None
    np: int | RankRange | None = None
    accelerators: int | None = None
    gpus: str | None = None
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
    tf1: bool = False
    tf_config: str | None = None
    ps: int | None = None
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
        """What -mpiarg hands to the launcher. mpirun before version 5 took some long options with one dash,
        and so most job scripts have them.
        """
        arguments = _split("-mpiarg", self.mpiarg)
        if self.launcher not in (None, "mpirun"):
            return arguments
        return [f"-{word}" if word in _WITH_ONE_DASH else word for word in arguments]

    @property
    def maps_itself(self) -> bool:
        """Whether the user says by -rankfile or mpirun's own words which rank is where; `--map-by slot` is
        what ddlrun does.
        """
        arguments = self.launcher_words()
        mappings = [word for name, word in pairwise(arguments) if name == "--map-by"]
        return self.rankfile is not None or "--rank-by" in arguments or mappings not in ([], ["slot"])

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
    arguments: list[str] = []
    for text in texts:
        try:
            arguments += shlex.split(text)
        except ValueError as error:
            raise usage(f"{name} {text!r} cannot be read: {error}", "close the quotes") from None
    return arguments


def usage(problem: str, remedy: str = "`ddlrun --help` lists the options") -> LaunchError:
    return LaunchError(Code.USAGE, problem, "on the command line", remedy, exit_code=2)
