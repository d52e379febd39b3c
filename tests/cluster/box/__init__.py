"""The cluster in a box: real slurmctld, slurmd, munge, Lmod and Apptainer, one Linux namespace set per node.

    host
    └── box            one set of user (unless root), mount, network, UTS, IPC and PID namespaces; bridges br0, br1
        ├── login      its own namespaces, a root file system overlay, eth0 on br0: munged, slurmctld
        ├── node1      the same, with 4 made-up GPUs:                               munged, slurmd
        └── …

Everything the cluster owns lives inside the box, so killing the box's first process makes the kernel
remove every process, mount, link and namespace of it, and nothing of anybody else's.
"""
