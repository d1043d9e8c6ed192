"""What the command line says: the options, and their completion in a shell."""
