"""A Spark standalone cluster for the time of one program: a master, and workers that run its executors.

    from ddl_spark import StandaloneCluster

    with StandaloneCluster(workers=2, cores=1) as cluster:
        spark = SparkSession.builder.master(cluster.master).getOrCreate()

or around a command:

    python -m ddl_spark --workers 2 -- python job.py
    ddlrun -H host1,host2 -accelerators 1 python -m ddl_spark --cores 8 -- python job.py

Under ddlrun each rank has workers, and rank 0 has the master and runs the command. The cluster takes programs
of its own user alone, who has its secret. It ends with the process that made it, also when that is killed.
"""

from ddl_spark.cluster import SparkClusterError, StandaloneCluster

__all__ = ["SparkClusterError", "StandaloneCluster"]
