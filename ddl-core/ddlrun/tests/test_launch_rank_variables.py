"""An environment without the variables by which launchers tell a process its rank."""

from __future__ import annotations

import pytest
from ddlrun import rank_variables

OF_A_RANK = (
    *("OMPI_COMM_WORLD_RANK", "OMPI_UNIVERSE_SIZE", "OMPI_FILE_LOCATION", "PRTE_LAUNCHED"),
    *(
        "PMIX_RANK",
        "PMIX_NAMESPACE",
        "PMIX_SERVER_URI41",
        "PMIX_MCA_gds",
        "PMIX_PREFIX",
        "PMI_RANK",
        "PMI_FD",
        "DDL_RANK_PROCESS",
    ),
    *("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_WORLD_SIZE", "LOCAL_WORLD_SIZE", "WORLD_SIZE"),
    *("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "DDL_LOCAL_GPU", "DDL_RANK_GPU"),
)
SETTINGS = (
    *("OMPI_MCA_btl", "OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "PRTE_ALLOW_RUN_AS_ROOT"),
    *("PRTE_MCA_plm", "PRTE_PREFIX", "DDL_OPTIONS", "DDL_RANK_PROCESSES"),
    *("PATH", "RANKS", "MY_RANK", "MASTER", "WORLD_SIZES", "SLURM_PROCID"),
)


def test_what_a_rank_is_told_goes_and_settings_stay() -> None:
    given = dict.fromkeys((*OF_A_RANK, *SETTINGS), "1")
    assert rank_variables.without(given) == dict.fromkeys(SETTINGS, "1")
    assert len(given) == len(OF_A_RANK) + len(SETTINGS)  # as it was


@pytest.mark.parametrize("name", rank_variables.MPI_RANK)
def test_where_mpi_tells_the_rank(name: str) -> None:
    assert rank_variables.of_mpi(name)
    assert not rank_variables.of_mpi("RANK")
