"""One model of the command line, and what is made of it: completion, man pages."""
