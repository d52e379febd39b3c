"""`jaxsif bench`: benchmarks, and the processing of their output."""
