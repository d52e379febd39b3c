"""Build an image: definition file, locks, base system, file system."""
