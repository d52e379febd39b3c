"""One module a command: DESCRIPTION, EPILOG, add_options and call; `cli` imports the one that is
asked for.
"""
