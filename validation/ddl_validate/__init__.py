"""What proves a cluster: the all-reduce benchmark `ddl-bench`, `ddl-gpu-check`, `wmlce-validate`, trainings
side by side, the hosts that are emulated for them, and the reports."""
