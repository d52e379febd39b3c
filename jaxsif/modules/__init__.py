"""Modulefiles of images."""
