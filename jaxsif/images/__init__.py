"""An image that is there: its file, labels and signatures; download, inspect, compare, list."""
