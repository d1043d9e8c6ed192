"""Scaling of tf_cnn_benchmarks over ranks, each run started by ddlrun."""
