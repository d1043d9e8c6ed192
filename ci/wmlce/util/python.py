"""The Python of the channel: the only place that states its version.

Names that hold it (`cp311`, `lib/python3.11`, python_abi) are made of it, in recipes too: `${{ python_tag }}`
(ci/wmlce/recipes/name_map.py). docs/cluster/update.md says what to run after a change of the version.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Python:
    """A minor version of CPython. The tool itself may run on another one."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"

    @property
    def number(self) -> str:
        """The version as build strings have it, as in py311."""
        return f"{self.major}{self.minor}"

    @property
    def tag(self) -> str:
        """The tag that wheels use for the interpreter and its binary interface."""
        return f"cp{self.number}"

    @property
    def abis(self) -> tuple[str, str, str]:
        """The binary interfaces of which it loads wheels, its own first."""
        return self.tag, "abi3", "none"

    @property
    def site_packages(self) -> str:
        """The folder of Python packages, from an environment's top."""
        return f"lib/python{self}/site-packages"

    def variables(self) -> dict[str, str]:
        """What recipes may say in place of the version; `python` is what they are built against."""
        return {
            "python": f"{self}.* *_cpython",
            "python_series": str(self),
            "python_number": self.number,
            "python_tag": self.tag,
            "python_tuple": f"{self.major}, {self.minor}",
            "python_pattern": f"{self.major}\\.{self.minor}",
        }


TARGET = Python(3, 11)
