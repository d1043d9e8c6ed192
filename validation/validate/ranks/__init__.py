"""What the checks start on the hosts."""
