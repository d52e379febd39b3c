"""Three ways to run one training step: on one device, over a mesh by jit, on all devices by pmap.

Each is a function of (options, init, update): the step as build_update() writes it, as if there were one device. It
returns the state on its devices, the step for these, and a function that brings NumPy's arrays to them.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.flatten_util import ravel_pytree
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

# The layers after a layer whose output is in parts: a mesh splits their rows, and the columns of the other layers.
SPLIT_ROWS = ("down", "out")


def build_update(model, optimizer, accumulate):
    """The training step: (state, batch) -> (state, loss)."""
    graph = nnx.graphdef(model)

    def loss_of(parameters, batch):
        inputs, labels = batch
        logits = nnx.merge(graph, parameters)(inputs).astype(jnp.float32)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
        return losses.mean(axis=-1).mean()  # in two steps: one long sum in float32 would round more

    def gradients(parameters, batch):
        """The mean over `accumulate` parts of the batch; there are activations of one part at a time."""
        if accumulate == 1:
            return jax.value_and_grad(loss_of)(parameters, batch)

        def add(total, part):
            return jax.tree.map(jnp.add, total, jax.value_and_grad(loss_of)(parameters, part)), None

        # Each part has rows of every device, so that no row moves to another one.
        parts = jax.tree.map(lambda x: x.reshape(-1, accumulate, *x.shape[1:]).swapaxes(0, 1), batch)
        zero = jax.tree.map(jnp.zeros_like, (jnp.float32(0), parameters))
        return jax.tree.map(lambda x: x / accumulate, jax.lax.scan(add, zero, parts)[0])

    def update(state, batch, over_devices=lambda gradients: gradients):
        parameters, moments = state
        loss, grads = over_devices(gradients)(parameters, batch)
        updates, moments = optimizer.update(grads, moments, parameters)
        return (optax.apply_updates(parameters, updates), moments), loss

    return update


def single(options, init, update):
    """The first device of a process."""
    return jax.jit(init)(), jax.jit(update, donate_argnums=0), jnp.asarray


def sharded(options, init, update):
    """All devices as a mesh: XLA splits the work as the arrays are split, and adds the communication."""
    mesh = jax.make_mesh(options.mesh, ("data", "model"), axis_types=(AxisType.Auto, AxisType.Auto))
    rows, whole = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())

    def split(path, x):
        return NamedSharding(mesh, split_axes(jax.tree_util.keystr(path), x.shape, mesh.shape, options.fsdp))

    def one_message(gradients):
        mean = mean_as_one_array(gradients, "data")
        return jax.shard_map(mean, mesh=mesh, in_specs=(P(), P("data")), out_specs=P(), check_vma=False)

    if options.one_message:
        update = partial(update, over_devices=one_message)
    state = jax.tree_util.tree_map_with_path(split, jax.eval_shape(init))
    step = jax.jit(update, donate_argnums=0, out_shardings=(state, whole))

    def put(x):  # each process takes the rows of its own devices
        return jax.make_array_from_callback(x.shape, rows, lambda index: x[index])

    return jax.jit(init, out_shardings=state)(), step, put


def mean_as_one_array(gradients, axis):
    """The mean over the devices of an axis, each of which has rows of its own: one all-reduce for all gradients."""

    def mean(parameters, batch):
        flat, restore = ravel_pytree(gradients(parameters, batch))
        return restore(jax.lax.pmean(flat, axis))

    return mean


def split_axes(path, shape, mesh, fsdp):
    """Which axis of the mesh splits each axis of a matrix of weights, or of its moments; vectors stay whole."""
    if len(shape) != 2:
        return P()
    axes = ("data" if fsdp else None, "model")
    if any(f"'{name}'" in path for name in SPLIT_ROWS):
        axes = axes[::-1]
    return P(*(axis if axis and size % mesh[axis] == 0 else None for axis, size in zip(axes, shape, strict=True)))


def pmapped(options, init, update):
    """Every device with the whole state: the step says what one device does, and where it meets the others."""
    local = jax.local_device_count()
    first = jax.process_index() * local

    copy = jax.pmap(lambda part: part)

    def put(x):  # pmap takes what is for the devices of this process
        parts = x.reshape(jax.device_count(), -1, *x.shape[1:])
        return copy(parts[first : first + local])

    def over_devices(gradients):
        if options.one_message:
            return mean_as_one_array(gradients, "devices")
        return lambda parameters, batch: jax.lax.pmean(gradients(parameters, batch), axis_name="devices")

    step = jax.pmap(partial(update, over_devices=over_devices), axis_name="devices", donate_argnums=0)
    return jax.pmap(lambda _: init())(np.arange(local)), step, put


MODES = {"single": single, "sharded": sharded, "pmap": pmapped}
