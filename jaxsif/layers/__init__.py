"""Packages on top of an image: make, find and mount them."""
