"""UCC, as the collective component of an Open MPI that was built with it."""

from __future__ import annotations

from pathlib import Path

from ..errors import PeerMissing
from ..testbed import Testbed
from .base import Setting, run_tool
from .openmpi import OpenMpi


def _has_component(prefix: Path) -> bool:
    """Whether the Open MPI in a prefix has the component coll/ucc, as ompi_info tells."""
    try:
        return "mca:coll:ucc:" in run_tool(prefix / "bin" / "ompi_info", "--parsable").stdout
    except PeerMissing:
        return False


class Ucc(OpenMpi):
    """MPI_Allreduce of an Open MPI that leaves collectives to UCC."""

    name = "ucc"
    title = "UCC"
    optional = True
    remedy = "an Open MPI configured --with-ucc, such as that of HPC-X; the channel has none"

    @classmethod
    def found_in(cls, prefix: Path) -> bool:
        return super().found_in(prefix) and _has_component(prefix)

    def prepare(self) -> str:
        if not _has_component(self.prefix):
            raise PeerMissing(f"the Open MPI in {self.prefix} has no component coll/ucc; {self.remedy}")
        return f"{super().prepare()} with coll/ucc"

    def settings(self, testbed: Testbed) -> list[Setting]:
        use = {"OMPI_MCA_coll_ucc_enable": "1", "OMPI_MCA_coll_ucc_priority": "100"}
        settings = [Setting("defaults", use)]
        if not testbed.crowded:
            settings.append(Setting("yielding", {**use, "OMPI_MCA_mpi_yield_when_idle": "1"}))
        for name, algorithm in (("Rabenseifner", "sra_knomial"), ("knomial", "knomial")):
            settings.append(Setting(name, {**use, "UCC_TL_UCP_TUNE": f"allreduce:@{algorithm}:inf"}))
        return settings
