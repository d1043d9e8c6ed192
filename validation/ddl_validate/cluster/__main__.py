"""``python -m ddl_validate.cluster up|exec|status|hostfile|down``: the emulated cluster from a shell."""

import argparse
import os
import sys
from pathlib import Path

from .cluster import Cluster
from .errors import ClusterError
from .spec import ClusterSpec


def _default_state() -> Path:
    return Path(os.environ.get("TMPDIR", "/tmp")) / f"emulated-cluster.{os.getuid()}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m ddl_validate.cluster", description="Emulated hosts on this machine."
    )
    parser.add_argument(
        "--state", type=Path, default=_default_state(), help="folder of the cluster (%(default)s)"
    )
    actions = parser.add_subparsers(dest="action", required=True)
    up = actions.add_parser("up", help="start a cluster").add_argument
    up("--hosts", type=int, default=2, help="equal hosts h1, h2, … (%(default)s)")
    up("--slots", default="1", help="slots of each host: a number, or one for each: 3,2,2,1")
    up("--racks", type=int, default=1)
    up("--rate", help="rate of each host's link, such as 1gbit (unlimited)")
    up("--uplink-rate", help="rate of each rack's uplink, such as 200mbit (unlimited)")
    up("--share", action="append", default=[], metavar="DIR", help="folder below /tmp all hosts see")
    up("--env", action="append", default=[], metavar="NAME=VALUE", help="variable of every command")
    up("--user", default="root", help="account that commands run as (%(default)s)")
    up("--life", type=int, default=1800, metavar="SECONDS", help="the cluster ends by itself (%(default)s)")
    run = actions.add_parser("exec", help="run a command on a host")
    run.add_argument("host")
    run.add_argument("command", nargs=argparse.REMAINDER)
    actions.add_parser("status", help="which hosts are up")
    actions.add_parser("hostfile", help="print the hosts and their slots")
    actions.add_parser("down", help="end the cluster")
    return parser


def _up(options: argparse.Namespace) -> None:
    try:
        slots = [int(word) for word in options.slots.split(",")]
    except ValueError:
        raise ClusterError(f"--slots {options.slots!r}: write a number, or numbers with commas") from None
    if len(slots) == 1:
        slots *= options.hosts
    unset = [pair for pair in options.env if "=" not in pair]
    if unset:
        raise ClusterError(f"--env {unset[0]!r}: write NAME=VALUE")
    spec = ClusterSpec.uneven(
        slots,
        options.racks,
        link_rate=options.rate,
        uplink_rate=options.uplink_rate,
        shared=tuple(options.share),
        environment=dict(pair.split("=", 1) for pair in options.env),
        user=options.user,
        life_seconds=options.life,
    )
    Cluster(spec, options.state, tied=False).up()
    print(f"up: {len(slots)} hosts in {options.racks} rack(s); hostfile {options.state / 'hostfile'}")


def main() -> int:
    options = _parser().parse_args()
    try:
        if options.action == "up":
            _up(options)
            return 0
        cluster = Cluster.attach(options.state)
        if options.action == "exec":
            if not options.command:
                raise ClusterError("exec: no command given")
            command = cluster.command(options.host, options.command)
            os.execv(command[0], command)
        elif options.action == "status":
            for host in cluster.spec.hosts:
                state = "up" if cluster.alive(host.name) else "DOWN"
                print(host.name, state, f"{host.slots} slots", f"rack {host.rack}", sep="\t")
        elif options.action == "hostfile":
            print(cluster.hostfile.read_text(), end="")
        else:
            cluster.down()
    except ClusterError as error:
        print(f"cluster: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
