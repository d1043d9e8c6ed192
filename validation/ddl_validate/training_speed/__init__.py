"""Training speed side by side: DDL, Horovod with and without it, PyTorch, and no communication at all."""
