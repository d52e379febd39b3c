"""The launchers, which start the tasks of a step, one per file."""
