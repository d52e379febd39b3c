"""An image that is to be: definition file, locks, base system, file system."""
