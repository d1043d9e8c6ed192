#!/bin/bash
set -euo pipefail
find ddl_validate -name __pycache__ -prune -exec rm -r {} +
cp -r ddl_validate "$SP_DIR/"
. ./entry_points.sh
entry_point ddl-bench ddl_validate.allreduce.cli main
entry_point ddl-gpu-check ddl_validate.gpu.cli main
entry_point wmlce-validate ddl_validate.suite.cli main
