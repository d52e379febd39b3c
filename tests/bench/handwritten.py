"""The MLP of slurm/train by jit + sharding, beside the same in plain JAX: shard_map, psum and AdamW by hand.

    make bench-train

Both are in the same processes, and make a step in turn, from the same parameters and batches; with the same losses.
Each has two forms: an all-reduce for each array of gradients, and one for all. Process 0 prints the median time of a
step, and the median of what it took relative to the last form by hand in the same turn. This file is run beside those
of slurm/train.
"""

import argparse
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import PartitionSpec as P
from train import BATCHES, Training, parse_options


def loss_of(parameters, x, labels):
    blocks, head = parameters
    for up, down in blocks:
        x = x + dense(jax.nn.relu(dense(x, up)), down)
    logits = dense(x, head)
    chosen = jnp.take_along_axis(logits, labels[:, None], axis=1)[:, 0]
    return (jax.nn.logsumexp(logits, axis=1) - chosen).mean()


def dense(x, layer):
    kernel, bias = layer
    return x @ kernel + bias


def mean_of_each(gradients):
    return jax.lax.pmean(gradients, "data")


def mean_of_all(gradients):
    """One message: what it saves in waiting it may lose in copies."""
    leaves, tree = jax.tree.flatten(gradients)
    flat = jax.lax.pmean(jnp.concatenate([leaf.ravel() for leaf in leaves]), "data")
    parts = jnp.split(flat, np.cumsum([leaf.size for leaf in leaves])[:-1])
    return jax.tree.unflatten(tree, [part.reshape(leaf.shape) for part, leaf in zip(parts, leaves)])


def adamw(p, g, m, v, count, rate=1e-3, b1=0.9, b2=0.999, eps=1e-8, decay=1e-4):
    m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
    step = (m / (1 - b1**count)) / (jnp.sqrt(v / (1 - b2**count)) + eps) + decay * p
    return p - rate * step, m, v


class Handwritten:
    """As train.Training."""

    def __init__(self, training, mean):
        mesh = training.batches[0][0].sharding.mesh

        def step(state, batch):
            parameters, m, v, count = state
            loss, grads = mean(jax.value_and_grad(loss_of)(parameters, *batch))
            new = jax.tree.map(lambda *four: adamw(*four, count + 1), parameters, grads, m, v)
            parts = (jax.tree.map(lambda _, three, i=i: three[i], parameters, new) for i in range(3))
            return (*parts, count + 1), loss

        # check_vma: the checker would add psums of its own.
        manual = jax.shard_map(step, mesh=mesh, in_specs=(P(), P("data")), out_specs=(P(), P()), check_vma=False)
        self.step = jax.jit(manual, donate_argnums=0)
        parameters = plain(training.state[0])
        zero = jax.tree.map(jnp.zeros_like, parameters)
        whole = jax.sharding.NamedSharding(mesh, P())
        state = (parameters, zero, jax.tree.map(jnp.copy, zero), jnp.float32(0))
        self.state = jax.jit(lambda x: x, out_shardings=whole)(jax.tree.map(np.asarray, state))
        self.batches, self.seconds, self.losses = training.batches, [], []

    def advance(self):
        batch = self.batches[len(self.losses) % BATCHES]
        begin = time.perf_counter()
        self.state, loss = jax.block_until_ready(self.step(self.state, batch))
        self.seconds.append(time.perf_counter() - begin)
        self.losses.append(np.asarray(loss.addressable_data(0)).item())


def plain(parameters):
    """Flax's parameters as pairs of NumPy's arrays."""
    tree = jax.tree.map(np.asarray, nnx.to_pure_dict(parameters))

    def pair(layer):
        return layer["kernel"], layer["bias"]

    return [(pair(block["up"]), pair(block["down"])) for _, block in sorted(tree["blocks"].items())], pair(tree["head"])


def main():
    options = parse_options(argparse.ArgumentParser(description=__doc__))
    ours, ours_one = (
        Training(argparse.Namespace(**vars(options) | {"mode": "sharded", "one_message": one})) for one in (False, True)
    )
    ways = {
        "jit, a message each": ours,
        "jit, one message": ours_one,
        "by hand, a psum each": Handwritten(ours, mean_of_each),
        "by hand, one psum": Handwritten(ours, mean_of_all),
    }
    for number in range(options.steps):
        for one in list(ways.values())[:: 1 if number % 2 else -1]:
            one.advance()
    if jax.process_index():
        return
    print(f"mlp, width {options.width}, depth {options.depth}, batch {options.batch}: {jax.device_count()} devices")
    best = ways["by hand, one psum"].seconds[1:]
    for name, one in ways.items():
        np.testing.assert_allclose(one.losses, ours.losses, rtol=1e-4)
        ratio = np.median(np.divide(one.seconds[1:], best))
        print(f"{name:22}{statistics.median(one.seconds[1:]) * 1e3:9.2f} ms   {ratio:6.3f}")


if __name__ == "__main__":
    main()
