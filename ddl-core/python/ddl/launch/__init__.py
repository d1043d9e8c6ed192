"""ddlrun: find the hosts, check them, place the ranks, start the job with Open MPI's mpirun, say what went
wrong.

One subject a file, in the order in which a start goes through them:

    options     what the command line says
    sources/    where the hosts come from: -H, a hostfile, a rankfile, Slurm, LSF, PBS, Flux, this machine
    preflight   what every host is and whether it can take part (probe is what runs there)
    placement   how many ranks each host gets, and which cores each rank
    topology    nodes, racks, aisles; DDL_OPTIONS
    command     the mpirun line and the environment of the ranks
    launchers/  who starts the ranks: mpirun, srun, jsrun, flux
    job         these steps in their order, up to a job that is ready to start
    attempt     one run of it, and how that ended
    restarts    running it again after a failure, on the hosts that are left
    running     the job: output, signals, limits, its end
    output      which rank wrote what; output_streams: where it goes
    leftovers   processes of a job on one host, and their end; cleanup: on all hosts, whatever was killed
    failure     which rank died, where, and why
    simulate    instead of a start: predictions for a described cluster
    console     what ddlrun says, and its log

Nothing here but simulate imports a framework, numpy or the native library: it must start fast and work when
those are broken.
"""
