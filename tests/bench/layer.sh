# For bash in the sandbox of the cluster in a box, on this machine's network: the layer `train` in /sw/bench, for the
# image that there is now. The cluster itself has no package index.
# shellcheck shell=bash
set -eu
export XDG_DATA_HOME=/sw/bench XDG_CACHE_HOME=/sw/bench
JAX_IMAGE=$(ls /sw/jaxsif/images/*-cpu.sif)
export JAX_IMAGE
jaxsif=${JAXSIF:-$(ls /sw/jaxsif/*/bin/jaxsif)}
$jaxsif layer list | grep -q '^train .*ok' || { rm -rf "$XDG_DATA_HOME" && $jaxsif layer create train flax optax; }
