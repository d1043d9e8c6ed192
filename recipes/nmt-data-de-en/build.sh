#!/bin/bash
set -euo pipefail
texts=$PREFIX/share/nmt/de-en
PYTHONPATH=program PYTHONDONTWRITEBYTECODE=1 python -m nmt.prepare catalogues "$texts"
install -m644 "$RECIPE_DIR/README" "$texts/README"
mkdir licences
for source in catalogues/*; do
  for file in COPYING COPYING.GPL debian/copyright; do
    [ ! -f "$source/$file" ] || cp "$source/$file" "licences/$(basename "$source").$(basename "$file")"
  done
done
