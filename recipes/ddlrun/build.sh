#!/bin/bash
set -euo pipefail
find ddlrun -name __pycache__ -prune -exec rm -r {} +
mkdir -p "$SP_DIR" "$PREFIX/bin"
cp -r ddlrun "$SP_DIR/"
install -m 755 bin/ddlrun "$PREFIX/bin/"
completion() { # SHELL FILE
  mkdir -p "$(dirname "$2")"
  PYTHONDONTWRITEBYTECODE=1 "$PREFIX/bin/ddlrun" --completion "$1" > "$2"
}
completion bash "$PREFIX/share/bash-completion/completions/ddlrun"
completion zsh "$PREFIX/share/zsh/site-functions/_ddlrun"
completion fish "$PREFIX/share/fish/vendor_completions.d/ddlrun.fish"
