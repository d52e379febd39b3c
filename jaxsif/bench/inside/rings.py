"""Choose the links of a ring that can be measured at the same time."""


def find_rounds(nodes):
    """Return the pairs of neighbours in a ring of nodes, in rounds whose pairs share no node."""
    if nodes < 3:
        return [[(0, 1)]] if nodes == 2 else []
    even = [(node, node + 1) for node in range(0, nodes - 1, 2)]
    odd = [(node, (node + 1) % nodes) for node in range(1, nodes, 2)]
    return [even, odd] if nodes % 2 == 0 else [even, odd, [(nodes - 1, 0)]]
