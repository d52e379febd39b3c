"""Measure collectives across all devices, and permutes between neighbouring nodes, and check their
results.

    python collectives.py OPERATIONS SIZES ITERATIONS SECONDS LINK_SIZE

Process 0 prints a record of each measurement, as a line of JSON; sizes are bytes that each device
holds, as nccl-tests counts. A time is the slowest process's median over the iterations. With 0
ITERATIONS, there are as many iterations as fit in SECONDS.
"""

import itertools
import sys

import jax
import numpy as np
from common import emit, gather, measure, node_names, room_for_device, tell_memory, tell_system
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from rings import find_rounds

AXIS = "devices"
PERIOD = 31  # of the data: device i holds (7 i + j) mod 31, so all sums are exact
CHUNK = 1 << 20  # elements checked at a time
# Copies of its data that a device needs room for: input, two outputs, and the transport's own.
COPIES = 4


def operation(name, n):
    """Return the function that each device runs, and the NumPy value of element j of its result on
    device d, from `size` elements.
    """

    def value(device, j):
        return (7 * device + j) % PERIOD

    sums = np.array([sum(value(device, j) for device in range(n)) for j in range(PERIOD)])
    ring = [(device, (device + 1) % n) for device in range(n)]
    return {
        "all-reduce": (lambda x: lax.psum(x, AXIS), lambda d, j, size: sums[j % PERIOD]),
        "all-gather": (
            lambda x: lax.all_gather(x, AXIS, tiled=True),
            lambda d, j, size: value(j // (size // n), j % (size // n)),
        ),
        "reduce-scatter": (
            lambda x: lax.psum_scatter(x, AXIS, tiled=True),
            lambda d, j, size: sums[(d * (size // n) + j) % PERIOD],
        ),
        "all-to-all": (
            lambda x: lax.all_to_all(x, AXIS, 0, 0, tiled=True),
            lambda d, j, size: value(j // (size // n), d * (size // n) + j % (size // n)),
        ),
        "permute": (
            lambda x: lax.ppermute(x, AXIS, ring),
            lambda d, j, size: value((d - 1) % n, j),
        ),
    }[name]


def on_devices(mesh, function):
    """Return a program that calls the function on each device with its share of the input."""
    return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=P(AXIS), out_specs=P(AXIS)))


def make_input(mesh, elements):
    """Return an array with `elements` numbers on each device."""

    def fill(index):
        device = (index[0].start or 0) // elements
        period = (7 * device + np.arange(PERIOD)) % PERIOD
        return np.tile(period.astype(np.float32), -(-elements // PERIOD))[:elements]

    return jax.make_array_from_callback((mesh.size * elements,), NamedSharding(mesh, P(AXIS)), fill)


def check(result, expected, what):
    """Compare this process's shards of the result with expected(device, indices)."""
    for shard in result.addressable_shards:
        data = np.asarray(shard.data)
        device = (shard.index[0].start or 0) // data.size
        for begin in range(0, data.size, CHUNK):
            part = data[begin : begin + CHUNK]
            right = expected(device, np.arange(begin, begin + part.size))
            assert np.array_equal(part, right), f"{what}: wrong numbers on device {device}"


def round_size(size, n):
    """Return a size that splits into equal parts for n devices, each with at least one number."""
    return max(size // 4 // n, 1) * n * 4


def measure_operation(mesh, name, size, iterations, seconds):
    """Measure one operation at one size."""
    n = mesh.size
    elements = size // 4
    function, expected = operation(name, n)
    x = make_input(mesh, elements // n if name == "all-gather" else elements)
    result, times, count = measure(on_devices(mesh, function), x, iterations, seconds)
    check(result, lambda d, j: expected(d, j, elements), f"{name} of {size} bytes")
    emit("operation", operation=name, size=4 * elements, time=float(times.max()), iterations=count)


def measure_links(mesh, names, size, iterations, seconds):
    """Measure the links from each node to its neighbours in a ring, and back: all devices of a node
    send at the same time.
    """
    devices = find_devices(mesh, names)
    nodes = list(devices)
    size = max(size // 4, 1) * 4
    x, one = make_input(mesh, size // 4), make_input(mesh, 1)
    for pairs in find_rounds(len(nodes)):
        there = [(nodes[a], nodes[b]) for a, b in pairs]
        back = [(b, a) for a, b in there]
        round_trip = permutes(find_moves(there, devices), find_moves(back, devices))
        _, trips, _ = measure(on_devices(mesh, round_trip), one, iterations, seconds)
        for links in (there, back):
            moves = find_moves(links, devices)
            result, times, _ = measure(on_devices(mesh, permutes(moves)), x, iterations, seconds)
            check(result, received(moves), f"permute {links}")
            for a, b in links:
                both = [process for process, name in enumerate(names) if name in (a, b)]
                rate = size * min(len(devices[a]), len(devices[b])) / float(times[both].max())
                latency = float(trips[both].max()) / 2
                emit("link", **{"from": a, "to": b}, size=size, bandwidth=rate, latency=latency)


def find_devices(mesh, names):
    """Return the devices of each node, as their numbers in the mesh."""
    devices = {name: [] for name in names}
    for number, device in enumerate(mesh.devices.flat):
        devices[names[device.process_index]].append(number)
    return devices


def find_moves(links, devices):
    """Return the pairs of devices that send and receive over these links."""
    return [pair for a, b in links for pair in zip(devices[a], devices[b], strict=False)]


def permutes(*moves):
    """Return a function that makes one permute after another."""

    def function(x):
        for pairs in moves:
            x = lax.ppermute(x, AXIS, pairs)
        return x

    return function


def received(moves):
    """Return the values that each device has after a permute: its source's numbers, or zeros."""
    sources = {to: source for source, to in moves}
    return lambda d, j: (7 * sources[d] + j) % PERIOD if d in sources else 0 * j


def main():
    operations, sizes, iterations, seconds, link_size = sys.argv[1:]
    iterations, seconds, link_size = int(iterations), float(seconds), int(link_size)
    jax.distributed.initialize()
    names = node_names()
    mesh = Mesh(np.array(jax.devices()), (AXIS,), axis_types=(AxisType.Auto,))
    tell_system(names)
    room = float(gather([room_for_device(names)]).min())
    sizes = dict.fromkeys(round_size(int(size), mesh.size) for size in sizes.split(","))
    for name, size in itertools.product(operations.split(","), sizes):
        if has_room(f"{name} of {size} bytes", size, room):
            measure_operation(mesh, name, size, iterations, seconds)
    if has_room("links", link_size, room):
        measure_links(mesh, names, link_size, iterations, seconds)
    tell_memory(names)


def has_room(what, size, room):
    """Return whether a device has room for arrays of this size; print a note if it does not."""
    if COPIES * size > room:
        emit("note", text=f"{what} left out: a device has room for {room:.0f} bytes")
        return False
    return True


main()
