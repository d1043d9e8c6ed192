"""What ``ddl-gpu-check`` runs on every rank."""
