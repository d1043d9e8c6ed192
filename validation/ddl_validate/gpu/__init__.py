"""``ddl-gpu-check``: whether DDL works on the GPUs of this host, and how fast."""
