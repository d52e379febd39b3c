"""How many processes on which nodes, with which GPUs: what was asked for, what there is, whether
they fit.
"""
