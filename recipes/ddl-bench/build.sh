#!/bin/bash
set -euo pipefail
find ddl_bench -name __pycache__ -prune -exec rm -r {} +
cp "$RECIPE_DIR/__init__.py" ddl_bench/
cp -r ddl_bench "$SP_DIR/"
