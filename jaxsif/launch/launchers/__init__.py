"""The launchers, which start the tasks of a step; each file here is one."""
