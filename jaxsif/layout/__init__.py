"""Who gets which GPUs; pure, but for topology.py."""
