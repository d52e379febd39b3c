"""Probe this host, start the tasks, and wait for them."""
