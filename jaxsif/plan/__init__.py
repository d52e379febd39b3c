"""Everything that a run starts, as data; pure."""
