"""Watch the program for hangs, and the programs that JAX compiles."""
