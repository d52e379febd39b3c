"""Modulefiles for images."""
