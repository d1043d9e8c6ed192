"""The all-reduce benchmark ``ddl-bench`` and the emulated hosts that it runs on."""
