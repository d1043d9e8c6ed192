#!/bin/bash
set -euo pipefail
mkdir -p "$SP_DIR"
cp -r wml_ce_commands "$SP_DIR/"
install -D -m 644 README.md "$PREFIX/doc/README.md"
# with a link /opt/DL to the environment, job files for PowerAI 1.5 find theirs
for component in ddl ddl-tensorflow pytorch tensorflow; do
  install -D -m 755 activate.sh "$PREFIX/bin/$component-activate"
  install -D -m 755 activate.sh "$PREFIX/$component/bin/$component-activate"
done
. ./entry_points.sh
for command in $("$PYTHON" -c 'from wml_ce_commands.cli import COMMANDS; print(*COMMANDS)'); do
  entry_point "$command" wml_ce_commands.cli run
done
