#!/bin/bash
set -euo pipefail
find nmt -name __pycache__ -prune -exec rm -r {} +
cp -r nmt "$SP_DIR/"
