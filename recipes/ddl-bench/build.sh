#!/bin/bash
set -euo pipefail
find ddl_validate -name __pycache__ -prune -exec rm -r {} +
cp -r ddl_validate "$SP_DIR/"
