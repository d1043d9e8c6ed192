"""Training over several processes by TensorFlow's own servers: --job_name and hosts, or TF_CONFIG."""
