#!/bin/bash
# In the cluster in a box: jit + sharding of slurm/train beside the same by hand. Arguments are those of handwritten.py.
set -eu
cd "$(dirname "$0")/../.."
minicluster=tests/cluster/minicluster

$minicluster sandbox -- bash -c "$(cat tests/bench/layer.sh)"

# shellcheck disable=SC2016 # the other shell expands it
$minicluster exec -- bash -lc '
    module load jax/sif
    folder=$(mktemp -d ~/bench.XXXXXX) && trap "rm -r $folder" EXIT
    cp "$JAXSIF_HOME"/slurm/train/*.py "$folder" && cd "$folder" && cat >handwritten.py
    export XDG_DATA_HOME=/sw/bench
    jaxsif run --layer train --nodes=2 --ntasks-per-node=1 --gpus-per-node=1 -- python handwritten.py "$@"
' bash "$@" <tests/bench/handwritten.py
