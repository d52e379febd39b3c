#!/bin/bash
# First process of the box: two bridges, then one child with namespaces of its own per node. When it dies, the
# kernel takes everything below it along.
#
#   box-init.sh HOME ROOTFS NAME=ADDRESS...
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
home=$1 rootfs=$2
shift 2
export PATH=$PATH:/usr/sbin:/sbin

# /proc still is the host's: this line tells the host which process we are (pid, and start time as field 22).
read -r stat </proc/self/stat
echo "$stat" >"$home/box.stat.new"
mv "$home/box.stat.new" "$home/box.stat"

mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs -o mode=755 tmpfs "$home/run"

ip link set lo up
for network in 0 1; do
    ip link add "br$network" type bridge
    ip link set "br$network" up
done
count=0

for node in "$@"; do
    name=${node%%=*} address=${node#*=}
    mkdir -p "$home/run/$name" "$home/log/$name"
    unshare --mount --net --uts --ipc --pid --fork \
        "$here/node-init.sh" "$home" "$rootfs" "$name" "$address" >"$home/log/$name/node.log" 2>&1 &
    until [ -s "$home/run/$name.pid" ]; do
        kill -0 $! # the node could not start: its node.log says why
        sleep 0.01
    done
    for network in 0 1; do
        ip link add "veth$network-$count" type veth peer name "eth$network" netns "$(cat "$home/run/$name.pid")"
        ip link set "veth$network-$count" master "br$network" up
    done
    count=$((count + 1))
done

# Processes whose parents are gone end here; reap them for ever.
while :; do
    wait || true
    sleep 1
done
