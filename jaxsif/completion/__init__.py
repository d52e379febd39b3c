"""Scripts by which shells complete the command line; they start no jaxsif."""
