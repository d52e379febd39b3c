"""An existing image: its file, labels and signatures; download, inspect, compare, list."""
