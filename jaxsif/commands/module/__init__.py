"""jaxsif module …: one module a verb."""
