#!/bin/bash
# A command in the nodes' root file system, on the host's network: where images are built and things installed on
# a machine without Apptainer. Changes to the root file system are forgotten; the folder WORK and /sw are the real ones.
# The command starts in the caller's folder if that is below WORK, otherwise in WORK.
#
#   sandbox.sh HOME ROOTFS WORK COMMAND...
set -euo pipefail

home=$1 rootfs=$2 work=$3 here=$PWD
shift 3
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

scratch=$home/run
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs "$scratch"
root=$scratch/root
mkdir "$root" "$scratch/upper" "$scratch/work"
mount -t overlay -o "lowerdir=$rootfs,upperdir=$scratch/upper,workdir=$scratch/work,userxattr" overlay "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
mkdir -p "$root/sw" "$root/$work"
mount --bind "$home/shared/sw" "$root/sw"
mount --bind "$work" "$root/$work"
cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
# The host's certificate authorities, at the path that every program looks at.
ca=/etc/ssl/certs/ca-certificates.crt
if [ -f "$ca" ]; then cp -L "$ca" "$root$ca"; fi
cd "$root"
pivot_root . .
umount -l .
export HOME=/root
case $here in
"$work" | "$work"/*) cd "$here" ;;
*) cd "$work" ;;
esac
exec "$@"
