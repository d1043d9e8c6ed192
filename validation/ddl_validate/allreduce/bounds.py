"""The least time that the links allow an all-reduce.

G groups (hosts, or racks) that share one link each, and a buffer of S bytes: without reduction inside the
network each group must send, and receive, 2 (G-1)/G x S on average, through its link of R bytes a second of
payload. The slowest tier sets the bound: max over tiers of 2 (G-1)/G x S / R. Reduction and memory are not
part of it.
"""

from dataclasses import dataclass

from .scenarios import Scenario, bits

# What TCP leaves of the line rate that tc counts: 1448 bytes of data in a frame of 1514 bytes.
PAYLOAD = 1448 / 1514
# What DDL sends of four bytes between hosts, by its wire format (docs/reference/wire-formats.md).
WIRE_FORMATS = {"full": 1.0, "bf16": 1 / 2, "fp16": 1 / 2, "q8": 260 / 1024}


@dataclass(frozen=True)
class Tier:
    """groups groups, each behind a link that carries rate bytes of payload a second in each direction."""

    name: str
    groups: int
    rate: float

    def seconds(self, size: int) -> float:
        """Least time of an all-reduce of ``size`` bytes over this tier."""
        return 2 * (self.groups - 1) / self.groups * size / self.rate


def payload_rate(rate: str) -> float:
    """Bytes of TCP payload a second on a link of a nominal rate such as 200mbit."""
    return bits(rate) * PAYLOAD / 8


def tiers(scenario: Scenario) -> list[Tier]:
    """The tiers of a scenario whose links have a known rate."""
    bounds = []
    if len(scenario.slots) > 1 and scenario.host_rate:
        bounds.append(Tier("host links", len(scenario.slots), payload_rate(scenario.host_rate)))
    if scenario.racks > 1 and scenario.uplink_rate:
        bounds.append(Tier("rack uplinks", scenario.racks, payload_rate(scenario.uplink_rate)))
    return bounds


def bandwidth_lower_bound(scenario: Scenario, size: int, wire: str = "full") -> float | None:
    """Seconds of a call of ``size`` bytes, of which links carry what the wire format leaves; None where no
    link of
    a known rate is in the way."""
    return max((tier.seconds(size) * WIRE_FORMATS[wire] for tier in tiers(scenario)), default=None)
