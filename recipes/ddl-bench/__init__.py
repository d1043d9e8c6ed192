"""The all-reduce benchmark ``ddl-bench``, the emulated hosts that it runs on, and ``ddl-gpu-check``."""
