"""The environment of an image: variables, libraries of the host, compile cache, policies."""
