"""Everything that a run starts, as values; pure."""
