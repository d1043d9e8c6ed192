"""How long jobs take to start, on emulated hosts."""
