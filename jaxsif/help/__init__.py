"""A model of the command line, its completion in shells, and suggestions after an error."""
