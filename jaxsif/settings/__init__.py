"""What was asked for, and what said so: the command line, variables, files."""
