"""What stands beside the image in a container: variables, libraries of the host, compile cache,
policies.
"""
