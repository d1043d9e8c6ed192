"""Variables of Open MPI that everything here that starts ranks sets."""

#: Open MPI refuses root without these; whoever emulates hosts is root, and so are most containers' users.
MPI_AS_ROOT = {
    f"{project}_ALLOW_RUN_AS_ROOT{suffix}": "1" for project in ("OMPI", "PRTE") for suffix in ("", "_CONFIRM")
}
