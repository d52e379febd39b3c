"""jaxsif bench …: one module a verb."""
