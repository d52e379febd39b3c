"""Checks of the network, and of the files that all nodes must see."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from jaxsif.doctor.devices import find_gpu_tasks
from jaxsif.doctor.facts import DoctorFacts
from jaxsif.doctor.result import (
    NODE,
    SITE,
    USER,
    Results,
    failure,
    find_odd,
    unknown,
    warning,
)
from jaxsif.settings.config import for_staff, is_of_site

_SKEW = 1.0  # seconds
_SLOW = 8  # times slower than the median
_FAST = 20e6  # bytes/s; such a node is not slow, whatever the others are
# Seconds between the begins of two nodes, such as after a prolog, after which they have not met:
# each one waits for 4 to 5 s.
_LATE = 3.0
_LOOPBACK = ("127.", "::1")


def check_port(seen: DoctorFacts) -> Results:
    """Check that each node reaches the first one at the port of JAX's coordinator."""
    first = seen.first
    for node in seen.nodes.values():
        late = node.began - first.began if first and node.began and first.began else 0.0
        if not node.reason:
            continue
        if node.number == 0:
            yield failure(
                node.reason,
                "run it again, with another port, or pass --coordinator-ports",
                USER,  # another program has the port, and a later run takes another one
                [node.node],
            )
        elif abs(late) > _LATE:
            yield unknown(
                f"began {abs(late):.0f} s {'after' if late > 0 else 'before'} the first node",
                [node.node],
            )
        else:
            yield failure(
                f"cannot reach task 0's node at {node.reason}",
                "open the ports of --coordinator-ports between nodes, or pass --node-address",
                SITE,
                [node.node],
            )


def check_names(seen: DoctorFacts) -> Results:
    """Check that each node's name has the same address everywhere, and not a loopback address. With
    another real address, no node is at fault: DNS may rotate them, or give some nodes IPv6 only.
    """
    found = list(_find_wrong_names(seen))
    with_gpus = find_gpu_tasks(seen)
    # Debian gives each node's own name an address of the loopback: no node is then worse.
    is_alone = len({node for *_, nodes in found for node in nodes}) < len(seen.nodes)
    for name, address, other, nodes in found:
        is_wrong = _is_useless(address)
        # NCCL and JAX's coordinator do not look up a node's own name; collectives of CPUs do.
        is_own = nodes == [name] and address and name in with_gpus
        has = f"the address {address}" if address else "no address"
        yield (failure if is_wrong and not is_own else warning)(
            f"{name} has {has} there, {other}",
            "correct /etc/hosts or DNS there, or pass --node-address",
            NODE if is_wrong and is_alone else SITE,
            nodes,
        )


def _is_useless(addresses: str) -> bool:
    return all(part.startswith(_LOOPBACK) or not part for part in addresses.split(","))


def _find_wrong_names(seen: DoctorFacts) -> Iterator[tuple[str, str, str, list[str]]]:
    """Yield a name, its wrong addresses, what is right, and the nodes with the wrong ones."""
    found: dict[str, dict[str, list[str]]] = {}  # name -> its addresses -> the nodes with these
    for node in seen.nodes.values():
        for name, addresses in node.addresses.items():
            found.setdefault(name, {}).setdefault(addresses, []).append(node.node)
    for name, known in found.items():
        useful = (addresses for addresses in known if not _is_useless(addresses))
        right = max(useful, key=lambda addresses: len(known[addresses]), default="")
        for addresses, nodes in known.items():
            missing = "which no other node can reach" if addresses else "nor elsewhere"
            is_other = set(right.split(",")).isdisjoint(addresses.split(","))
            if is_other or _is_useless(addresses):
                yield name, addresses, f"else {right}" if right else missing, nodes


def check_links(seen: DoctorFacts) -> Results:
    """Check that no node's connection to the first one is much slower than the others'."""
    rates = {node.node: node.rate for node in seen.nodes.values() if node.rate}
    middle = median(rates.values()) if rates else 0.0
    bound = _FAST / 4 if len(rates) < 3 else min(middle / _SLOW, _FAST)
    return [
        warning(
            f"{rate / 1e6:.1f} MB/s to the first node and back; the median is {middle / 1e6:.0f}",
            "leave the node out with --exclude; `jaxsif bench collectives` measures all links",
            NODE,
            [name],
        )
        for name, rate in rates.items()
        if rate < bound
    ]


def check_clocks(seen: DoctorFacts) -> Results:
    """Check that the nodes' clocks agree, on which certificates and caches depend."""
    return [
        warning(
            f"the clock is {node.skew:+.1f} s off the first node's",
            "have the site start chrony or ntpd",
            SITE,
            [node.node],
        )
        for node in seen.nodes.values()
        if abs(node.skew) > _SKEW
    ]


def check_infiniband(seen: DoctorFacts) -> Results:
    """Check that the same ports of InfiniBand are up everywhere. Others may have no cable."""
    rates = {
        node.node: ", ".join(rate for _, rate in node.active_ports) or "none"
        for node in seen.nodes.values()
    }
    common, odd = find_odd(rates)
    report = "leave the node out with --exclude"
    for rate, nodes in odd.items():
        yield warning(f"active InfiniBand ports: {rate}; elsewhere: {common}", report, NODE, nodes)
    active = {name for node in seen.nodes.values() for name, _ in node.active_ports}
    for node in seen.nodes.values():
        up = {name for name, _ in node.active_ports}
        for name, state, _ in node.ports:
            if up and name in active - up:
                yield warning(
                    f"InfiniBand port {name} is in state {state}", report, NODE, [node.node]
                )


def check_verbs(seen: DoctorFacts) -> Results:
    """Check that the image has the library for InfiniBand, where nodes have that."""
    fast = seen.fast_nodes
    return [
        warning(
            "the image lacks libibverbs: NCCL uses TCP, although the node has InfiniBand",
            "use an image with libibverbs and its providers, or pass --fabric",
            USER,
            [task.node],
        )
        for task in seen.tasks.values()
        if task.visible and task.node in fast and not task.verbs
    ]


def check_transport(seen: DoctorFacts) -> Results:
    """Check that NCCL has chosen the fast network."""
    fast = seen.fast_nodes
    return [
        warning(
            "NCCL uses TCP, although the node has InfiniBand",
            "pass --fabric; unset NCCL_IB_DISABLE and NCCL_NET",
            USER,
            [found.node],
        )
        for found in seen.sums.values()
        if found.network == "Socket" and found.node in fast
    ]


def check_folders(seen: DoctorFacts) -> Results:
    """Check that all nodes can write to the folders of checkpoints, of compiled programs and of
    logs, and that they see the same ones.
    """
    first = seen.first
    broken = {path for path, problem in (first.folders if first else ()) if problem}
    for node in seen.nodes.values():
        for path, problem in node.folders:
            if problem and (node is first or path not in broken):
                is_cache = path == seen.host.cache  # a run without it only compiles all again
                judge = warning if is_cache else failure
                option = "--compile-cache-folder" if is_cache else "run.log-dir"
                source = seen.host.sources.get(path, option)
                hint = f"name a folder that all nodes share and you can write to: {source}"
                whose = SITE if is_of_site(source) else USER
                yield judge(f"{path}: {problem}", for_staff(hint, source), whose, [node.node])


def check_image(seen: DoctorFacts) -> Results:
    """Check that all nodes read the same image."""
    digests = {node.node: node.image for node in seen.nodes.values() if node.image}
    common, odd = find_odd(digests)
    gone = {"missing": list(digests)} if common == "missing" else {}
    for digest, nodes in {**odd, **gone}.items():
        is_gone = digest == "missing"
        yield failure(
            f"the image {'is missing' if is_gone else 'differs from that of most nodes'}",
            "put the image on a disk that all nodes share, or pass --stage",
            USER,
            nodes,
        )


def check_proxies(seen: DoctorFacts) -> Results:
    """Check that no variable makes gRPC connect JAX's processes through a proxy."""
    return [
        failure(
            f"JAX's processes connect through {', '.join(task.proxies)} of the container",
            "remove it from --env, run.env and the site's scripts; others use HTTP_PROXY",
            USER,
            [task.node],
        )
        for task in seen.tasks.values()
        if task.proxies
    ]
