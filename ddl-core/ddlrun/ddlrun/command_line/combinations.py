"""Which options go together."""

import re

from .options import Options, usage

_INTERFACE = re.compile(r"[A-Za-z0-9_.@:-]{1,15}")


def check(options: Options) -> None:
    """Raises LaunchError (USAGE) where options exclude each other or a program is missing."""
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
    placing = (
        *(options.np, options.accelerators, options.cores, options.nnodes, options.exclude),
        options.gpus if options.gpus != "none" else None,
    )
    if options.rankfile and any(placing):
        raise usage(
            "-rankfile already places every rank",
            "leave -np, -accelerators, -gpus, -cores, -nnodes and -exclude out",
        )
    if options.rankfile and options.launcher not in (None, "mpirun"):
        raise usage("-rankfile places ranks for mpirun", "leave -launcher or -rankfile out")
    if (options.tf_config or options.ps) and options.launcher not in (None, "mpirun", "srun"):
        raise usage(
            f"-launcher {options.launcher} starts no TensorFlow cluster",
            "leave -launcher, or -tf-config and -ps, out",
        )
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
