"""Images for Singularity, Apptainer and OCI runtimes."""
