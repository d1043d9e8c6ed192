"""ddlrun: find the hosts, check them, place the ranks, start the job with a launcher, say what went wrong.

A folder for each step of a start, in its order:

    command_line/  what the user asked for; completion
    hosts/         where the hosts come from: -H, a hostfile, a rankfile, the scheduler around, this machine
    checks/        what every host is and whether it can take part (probe.py is what runs there)
    placement/     how many ranks each host gets, which cores each rank, and the tiers told to DDL
    start/         the launcher's line and the ranks' environment; launchers/: mpirun, srun, jsrun, flux
    tasks/         TensorFlow's clusters: TF_CONFIG, parameter servers, a supervisor for each rank
    run/           the job while it runs: output, signals, limits, failures, restarts, its end
    report/        what people look at: host report, topology diagram, predictions, flight records

No way along the imports between these folders leads back. cli.py is the program; survey.py looks at the
hosts, preparation.py makes of what it found a job (job.py) that is ready to start, and run/ runs it.
console.py and errors.py are how ddlrun speaks, processes.py is how it and the extras start, limit and end
processes.

Nothing here but report/simulate.py imports a framework, numpy or the native library: it must start fast and
work when those are broken.
"""
