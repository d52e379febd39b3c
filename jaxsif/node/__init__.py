"""Programs for compute nodes, outside the container: standard library only, Python 3.9 or later."""
