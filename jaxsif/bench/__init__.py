"""`jaxsif bench`: programs that measure, and what is made of what they print."""
