"""Bridges, links and their rates. All of it lives in the fabric's and the hosts' namespaces, none in the
machine's.
"""

from pathlib import Path

from .errors import ClusterError
from .process import in_namespaces, tool
from .spec import ClusterSpec, rate_in_bits

# A bucket holds two milliseconds of traffic, and at least two of the largest packets the stack hands down.
_BURST_SECONDS = 1 / 500
_BURST_LEAST = 131072


def _shape(pid: int, device: str, rate: str | None) -> None:
    """Limit what leaves ``device`` in the network namespace of ``pid``."""
    bits = rate_in_bits(rate)
    if bits is None:
        return
    burst = max(int(bits / 8 * _BURST_SECONDS), _BURST_LEAST)
    bucket = f"tbf rate {bits}bit burst {burst} latency 40ms"
    tool(*in_namespaces(pid, "n", f"tc qdisc replace dev {device} root {bucket}".split()))


def connect(spec: ClusterSpec, fabric: int, hosts: list[int]) -> None:
    """Join the hosts (pids of their holders, in the spec's order) through the fabric."""

    def ip(pid: int, *arguments: str) -> None:
        try:
            tool(*in_namespaces(pid, "n", ["ip", *arguments]))
        except ClusterError as error:
            raise ClusterError(f"network of the emulated cluster: {error}") from error

    ip(fabric, "link", "set", "lo", "up")
    for rack in range(spec.racks):
        ip(fabric, "link", "add", f"rack{rack}", "type", "bridge")
        ip(fabric, "link", "set", f"rack{rack}", "up")
    for rail in range(1, spec.rails):
        ip(fabric, "link", "add", f"rail{rail}", "type", "bridge")
        ip(fabric, "link", "set", f"rail{rail}", "up")
    if spec.racks > 1:
        ip(fabric, "link", "add", "spine", "type", "bridge")
        ip(fabric, "link", "set", "spine", "up")
        for rack in range(spec.racks):
            ip(fabric, "link", "add", f"up{rack}", "type", "veth", "peer", "name", f"down{rack}")
            ip(fabric, "link", "set", f"up{rack}", "master", f"rack{rack}", "up")
            ip(fabric, "link", "set", f"down{rack}", "master", "spine", "up")
            rate = dict(spec.uplink_rates).get(rack, spec.uplink_rate)
            _shape(fabric, f"up{rack}", rate)
            _shape(fabric, f"down{rack}", rate)
    for index, (host, pid) in enumerate(zip(spec.hosts, hosts, strict=True)):
        for rail in range(spec.rails):
            port, interface = f"port{index}" + (f".{rail}" if rail else ""), f"eth{rail}"
            bridge = f"rail{rail}" if rail else f"rack{host.rack}"
            ip(fabric, "link", "add", port, "type", "veth", "peer", "name", interface, "netns", str(pid))
            ip(fabric, "link", "set", port, "master", bridge, "up")
            address = f"{spec.address(index, rail)}/{spec.prefix_length}"
            # nobody else could have it
            ip(pid, "addr", "add", address, "dev", interface, *(["nodad"] if spec.ipv6 else []))
            ip(pid, "link", "set", interface, "up")
            rate = dict(host.rail_rates).get(rail) or host.link_rate or spec.link_rate
            _shape(fabric, port, rate)
            _shape(pid, interface, rate)


def sent_bytes(spec: ClusterSpec, fabric: int) -> dict[str, int]:
    """What the kernel has counted so far on every link and direction, as bytes of Ethernet frames: `h1 out`,
    `h1 in` of a host's link, and with several racks `rack0 out`, `rack0 in` of a rack's uplink.
    """
    sent, received = {}, {}
    for line in Path(f"/proc/{fabric}/net/dev").read_text().splitlines()[2:]:
        device, _, numbers = line.partition(":")
        fields = numbers.split()
        received[device.strip()], sent[device.strip()] = int(fields[0]), int(fields[8])
    counted = {}
    for index, host in enumerate(spec.hosts):
        # the fabric's end of the link: what it receives the host has sent
        counted[f"{host.name} out"], counted[f"{host.name} in"] = (
            received[f"port{index}"],
            sent[f"port{index}"],
        )
    if spec.racks > 1:
        for rack in range(spec.racks):
            counted[f"rack{rack} out"], counted[f"rack{rack} in"] = sent[f"up{rack}"], sent[f"down{rack}"]
    return counted
