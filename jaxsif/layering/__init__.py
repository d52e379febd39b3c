"""Layers: make them, for `jaxsif run --layer` to mount."""
