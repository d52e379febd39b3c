"""Programs of a compute node, outside of the container: the standard library only, any Python from
3.9.
"""
