"""Watch the program: where it stands still, and the programs that JAX compiles."""
