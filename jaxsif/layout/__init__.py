"""The GPUs of each task; pure, except for topology.py."""
