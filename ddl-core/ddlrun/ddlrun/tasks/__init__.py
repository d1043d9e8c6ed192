"""TensorFlow's clusters: every process of a job gets TF_CONFIG, and parameter servers run beside the workers.

    plan.py        which tasks there are and where; what ddlrun tells the supervisors
    cluster.py     ports and addresses of the tasks, exchanged by MPI; TF_CONFIG
    child.py       one task as a process: its environment, its start, its end
    guard.py       kills what is left should a supervisor be killed
    supervisor.py  one for each rank, between the launcher and the program: starts tasks, watches them, starts
                   failed ones again, ends those that never end by themselves

Supervisors are the ranks that the launcher knows. The program is their child, and knows nothing of MPI.
"""
