# Commands of our packages, in place of the entry points that conda's tools write: those import what PYTHONPATH, a user's
# site-packages and start files say, also for root.

# entry_point NAME MODULE FUNCTION: $PREFIX/bin/NAME, which runs the function in the Python beside it, isolated
entry_point() {
  mkdir -p "$PREFIX/bin"
  cat >"$PREFIX/bin/$1" <<SCRIPT
#!/bin/sh
here=\$(dirname -- "\$(readlink -f -- "\$0")")
# for the programs that it starts: each of these can lead Python elsewhere
for name in \$(env | sed -n 's/^\(PYTHON[A-Z0-9_]*\)=.*/\1/p'); do unset "\$name"; done
export PYTHONNOUSERSITE=1
exec "\$here/python3" -I -c 'import sys; sys.argv[:2] = sys.argv[1:2]; from $2 import $3; sys.exit($3())' "\$0" "\$@"
SCRIPT
  chmod 755 "$PREFIX/bin/$1"
}
