"""The settings of a run, and their sources: the command line, variables, files."""
