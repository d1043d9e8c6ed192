# The image's own test: two ranks train, and agree on the result. Not more: it runs at every build.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export TMPDIR="$folder"
ddlrun -np 2 -timeout 240 python /usr/share/ibm-wml-ce/train.py
