#!/bin/bash
# First process of one node: root file system, network and daemons.
#
#   node-init.sh HOME ROOTFS NAME ADDRESS
set -euo pipefail

home=$1 rootfs=$2 name=$3 address=$4
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
root=$home/run/$name
local=$home/nodes/$name # the node's own disk: what it writes outside the shared folders

# /proc still is the box's: this is the process id that nsenter needs there.
read -r pid _ </proc/self/stat
echo "$pid" >"$home/run/$name.pid.new"
mv "$home/run/$name.pid.new" "$home/run/$name.pid"

mount_root() {
    mkdir -p "$local/upper" "$local/work"
    # userxattr is how overlayfs keeps its marks where trusted.* attributes need real root.
    mount -t overlay -o "lowerdir=$rootfs,upperdir=$local/upper,workdir=$local/work,userxattr" overlay "$root"
    mount -t proc proc "$root/proc"
    mount -t sysfs -o ro sysfs "$root/sys" || mount --rbind /sys "$root/sys"
    mount -t tmpfs -o mode=755 tmpfs "$root/run"
    mkdir -p "$root/sw" "$root/var/log/minicluster" "$root/root"
    mount --bind "$home/shared/home" "$root/home"
    mount --bind "$home/shared/sw" "$root/sw"
    mount --bind "$home/log/$name" "$root/var/log/minicluster"
}

bind_device() { # NAME
    [ -c "/dev/$1" ] || [ -b "/dev/$1" ] || return 0
    touch "$root/dev/$1"
    mount --bind "/dev/$1" "$root/dev/$1"
}

mount_dev() {
    local dev=$root/dev device
    mount -t tmpfs -o mode=755 tmpfs "$dev"
    mkdir "$dev/pts" "$dev/shm"
    # Root makes its own node, for everybody; bound, it keeps the mode that the host gave it.
    mknod -m 666 "$dev/fuse" c 10 229 2>/dev/null || bind_device fuse
    for device in null zero full random urandom tty $(cd /dev && ls -d loop* 2>/dev/null); do
        bind_device "$device"
    done
    for device in 0 1 2 3; do # GPUs that Slurm can hand out and nobody can compute on
        touch "$dev/fakegpu$device"
        mount --bind /dev/null "$dev/fakegpu$device"
    done
    mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 devpts "$dev/pts"
    mount -t tmpfs -o mode=1777 tmpfs "$dev/shm"
    ln -s pts/ptmx "$dev/ptmx"
    ln -s /proc/self/fd "$dev/fd"
    ln -s fd/0 "$dev/stdin"
    ln -s fd/1 "$dev/stdout"
    ln -s fd/2 "$dev/stderr"
}

# By the freezer of the first version of cgroups, Slurm keeps the processes of a step together. The node's root is a
# cgroup of its own: two boxes would have the same names.
mount_freezer() {
    grep -q '^CgroupPlugin=cgroup/v1' "$home/etc/slurm/cgroup.conf" || return 0
    local box freezer
    read -r box _ <"$home/box.stat"
    freezer=/sys/fs/cgroup/freezer/minicluster-$box/$name
    mkdir -p "$freezer"
    echo 0 >"$freezer/cgroup.procs"
    mount -t tmpfs tmpfs "$root/sys/fs/cgroup"
    mkdir "$root/sys/fs/cgroup/freezer"
    unshare --cgroup mount -t cgroup -o freezer cgroup "$root/sys/fs/cgroup/freezer"
}

configure() {
    hostname "$name"
    echo "$name" >"$root/etc/hostname"
    cp "$home/etc/hosts" "$root/etc/hosts"
    cp "$home"/etc/slurm/*.conf "$root/etc/slurm/"
    install -m 400 "$home/etc/munge.key" "$root/etc/munge/munge.key"
    mkdir -p "$root/var/spool/slurmd" "$root/var/spool/slurmctld" "$root/etc/lmod"
    echo /sw/modulefiles >"$root/etc/lmod/modulespath"
    echo /sw/modulefiles >"$root/etc/environment-modules/modulespath"
}

configure_network() {
    ip link set lo up
    local network
    for network in 0 1; do # 10.77… and 10.78…, as conf.py has them
        until ip link show "eth$network" >/dev/null 2>&1; do sleep 0.01; done
        ip address add "${address/.77./.7$((7 + network)).}/16" dev "eth$network"
        ip link set "eth$network" up
    done
}

start_daemons() {
    local log=/var/log/minicluster
    install -d -o munge -g munge /run/munge
    chown munge: /etc/munge/munge.key /etc/munge /var/lib/munge /var/log/munge
    setpriv --reuid munge --regid munge --init-groups \
        munged --foreground --num-threads=2 >"$log/munged.log" 2>&1 &
    until [ -S /run/munge/munge.socket.2 ]; do sleep 0.02; done
    if [ "$name" = login ]; then
        local user
        for user in user other; do
            [ -d "/home/$user" ] || cp -a /etc/skel "/home/$user"
            chown "$user:" "/home/$user"
            chmod 700 "/home/$user"
        done
        slurmctld -D >"$log/slurmctld.log" 2>&1 &
    else
        slurmd -D -N "$name" >"$log/slurmd.log" 2>&1 &
    fi
}

mount_root
mount_dev
mount_freezer
configure
configure_network
cd "$root"
pivot_root . .
umount -l .
cd /
start_daemons

# As the box: reap for ever.
while :; do
    wait || true
    sleep 1
done
