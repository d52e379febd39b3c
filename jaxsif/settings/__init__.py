"""What was asked for, and where: the command line, variables, files."""
