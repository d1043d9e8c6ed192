"""A number of ranks between two limits, `-np MIN:MAX`."""

from dataclasses import dataclass


@dataclass(frozen=True)
class RankRange:
    """From `least` to `most` ranks. least <= most."""

    least: int
    most: int

    def __str__(self) -> str:
        return f"{self.least}:{self.most}"


def parse(text: str) -> RankRange | None:
    """The range of `MIN:MAX`; None where the text is none."""
    parts = text.split(":")
    if len(parts) != 2 or not all(part.isascii() and part.isdecimal() and len(part) < 10 for part in parts):
        return None
    least, most = map(int, parts)
    return RankRange(least, most) if 1 <= least <= most else None
