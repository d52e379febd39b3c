"""Process 1 of several compiles another program than the others, or all compile the same; the argument says what."""

import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

jax.distributed.initialize()
process, processes = jax.process_index(), jax.process_count()
odd = process == 1


def make(devices=None, each=4, dtype=np.float32):
    """An array of so many numbers for each device."""
    devices = np.array(jax.devices() if devices is None else devices)
    numbers = np.arange(each * devices.size, dtype=dtype)
    return jax.make_array_from_callback(
        numbers.shape, NamedSharding(Mesh(devices, "d"), P("d")), lambda index: numbers[index]
    )


def loss(x):
    return (x * x).sum()


def other(x):
    return (x + 3).sum()


@custom_partitioning
def double(x):
    return 2 * x


double.def_partition(
    infer_sharding_from_operands=lambda mesh, shapes, result: shapes[0].sharding,
    partition=lambda mesh, shapes, result: (mesh, lambda x: 2 * x, shapes[0].sharding, (shapes[0].sharding,)),
    sharding_rule="i -> i",
)


def like(x):
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def execute(function, x):
    jax.block_until_ready(jax.jit(function)(x))
    print("executed", flush=True)


def dtype():
    execute(loss, make(dtype=np.int32 if odd else np.float32))


def shape():
    execute(loss, make(each=5 if odd else 4))


def order():
    x = make()
    for function in (other, loss) if odd else (loss, other):
        execute(function, x)


def only():
    x = make()
    if odd:
        jax.jit(other)(x)
    jax.jit(loss)(x)


def partitioning():
    jax.jit(lambda x: double(x).sum())(make())


def callback():
    jax.jit(lambda x: io_callback(np.asarray, like(x), x).sum())(make())


def pure():
    jax.jit(lambda x: jax.pure_callback(np.asarray, like(x), x).sum())(make())


def printing():
    def total(x):
        jax.debug.print("sum {}", x.sum())
        return x.sum()

    jax.jit(total)(make())


def stages():
    """Each half of the processes has programs of its own."""
    stage = process // (processes // 2)
    devices = [device for device in jax.devices() if device.process_index // (processes // 2) == stage]
    x = make(devices, each=2 + stage)
    jax.jit(other if stage else loss)(x)


def alone():
    """Process 1 computes with arrays that all have in full; the axis of their mesh is explicit."""
    mesh = jax.make_mesh((jax.device_count(),), ("d",))
    replicated = jax.device_put(np.arange(6.0).reshape(2, 3), NamedSharding(mesh, P()))
    if odd:
        assert "Explicit" in str(jax.typeof(replicated).sharding.mesh.axis_types)
        print(float(jnp.linalg.norm(replicated)), jax.jit(lambda x: (x @ x.T).mean())(replicated))
        print(np.asarray(jax.jit(lambda x, y: x @ y)(replicated, np.ones((3, 2)))).sum())
    jax.jit(loss)(make())


def threads():
    """They compile in another order in each process; all run the programs in one order."""
    x = make()
    lowered = [jax.jit(lambda x, factor=factor: (factor * x).sum()).lower(x) for factor in range(6)]
    compiled = [None] * len(lowered)

    def compile_all(numbers):
        for number in numbers:
            compiled[number] = lowered[number].compile()

    numbers = np.random.default_rng(process).permutation(len(lowered))
    workers = [threading.Thread(target=compile_all, args=(half,)) for half in (numbers[:3], numbers[3:])]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for program in compiled:
        program(x)


globals()[sys.argv[1]]()
jax.effects_barrier()
jnp.zeros(1).block_until_ready()
