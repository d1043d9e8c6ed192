# The image's own test: two ranks train on processors, and agree on the result. Not more: it runs at every build. Where
# --nv has brought a driver, DDL's results on the GPU are checked, too.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export TMPDIR="$folder"
ddlrun -np 2 -gpus none -timeout 240 python /usr/share/ibm-wml-ce/train.py
if [ -e /.singularity.d/libs/libcuda.so.1 ] && command -v ddl-gpu-check >/dev/null; then
    ddl-gpu-check --quick --only driver,values,order --limit 240
fi
