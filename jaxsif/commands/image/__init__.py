"""jaxsif image …: one module a verb."""
