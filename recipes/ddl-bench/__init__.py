"""The all-reduce benchmark ``ddl-bench``, the emulated hosts that it runs on, ``ddl-gpu-check`` and
``wmlce-validate``."""
