"""jaxsif layer …: one module a verb."""
