"""Two models in Flax, with data to learn from; nothing here knows of devices, processes or meshes.

MLP finds the largest of ten numbers. Transformer is a small decoder that continues rows of numbers.
"""

import jax
import numpy as np
from flax import nnx

CLASSES = 10
VOCABULARY = 256
HEAD = 32  # width of a head of attention


class FeedForward(nnx.Module):
    """To `hidden` features, and back."""

    def __init__(self, width, hidden, dtype, rngs):
        self.up = nnx.Linear(width, hidden, dtype=dtype, rngs=rngs)
        self.down = nnx.Linear(hidden, width, dtype=dtype, rngs=rngs)

    def __call__(self, x):
        return self.down(nnx.relu(self.up(x)))


class Attention(nnx.Module):
    """Each position looks at itself and at those before it."""

    def __init__(self, width, dtype, rngs):
        self.qkv = nnx.Linear(width, 3 * width, use_bias=False, dtype=dtype, rngs=rngs)
        self.out = nnx.Linear(width, width, dtype=dtype, rngs=rngs)

    def __call__(self, x):
        # Query, key and value of a head lie side by side: devices that split the features have whole heads.
        heads = self.qkv(x).reshape(*x.shape[:-1], -1, 3, HEAD)
        query, key, value = (heads[..., part, :] for part in range(3))
        return self.out(jax.nn.dot_product_attention(query, key, value, is_causal=True).reshape(x.shape))


class Layer(nnx.Module):
    """A layer of the transformer."""

    def __init__(self, width, dtype, rngs):
        self.before_attention = nnx.RMSNorm(width, dtype=dtype, rngs=rngs)
        self.attention = Attention(width, dtype, rngs)
        self.before_feed_forward = nnx.RMSNorm(width, dtype=dtype, rngs=rngs)
        self.feed_forward = FeedForward(width, 4 * width, dtype, rngs)

    def __call__(self, x):
        x = x + self.attention(self.before_attention(x))
        return x + self.feed_forward(self.before_feed_forward(x))


class MLP(nnx.Module):
    """`depth` residual blocks of two layers each, and a classifier."""

    def __init__(self, width, depth, length, dtype, rngs):
        self.width = width
        self.blocks = nnx.List([FeedForward(width, width, dtype, rngs) for _ in range(depth)])
        self.head = nnx.Linear(width, CLASSES, dtype=dtype, rngs=rngs)

    def __call__(self, x):
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)

    def examples(self, seed, count):
        """Vectors, and which of the first ten numbers of each is the largest."""
        x = np.random.default_rng(seed).standard_normal((count, self.width), np.float32)
        return x, x[:, :CLASSES].argmax(axis=1).astype(np.int32)

    def flops(self, weights):
        """Of training with one example: each weight of a matrix is used once forward, and twice backward."""
        return 6 * weights


class Transformer(nnx.Module):
    """`depth` layers between an embedding, with learned positions, and a classifier."""

    def __init__(self, width, depth, length, dtype, rngs):
        self.width, self.depth, self.length = width, depth, length
        self.embed = nnx.Embed(VOCABULARY, width, dtype=dtype, rngs=rngs)
        self.embed_position = nnx.Embed(length, width, dtype=dtype, rngs=rngs)
        self.layers = nnx.List([Layer(width, dtype, rngs) for _ in range(depth)])
        self.norm = nnx.RMSNorm(width, dtype=dtype, rngs=rngs)
        self.head = nnx.Linear(width, VOCABULARY, dtype=dtype, rngs=rngs)

    def __call__(self, tokens):
        x = self.embed(tokens) + self.embed_position(np.arange(self.length))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))

    def examples(self, seed, count):
        """Rows of numbers, each with a first number and a stride of its own; what is to come is one further."""
        random = np.random.default_rng(seed)
        first, stride = random.integers(VOCABULARY, size=(count, 1)), random.integers(1, 5, size=(count, 1))
        rows = ((first + stride * np.arange(self.length + 1)) % VOCABULARY).astype(np.int32)
        return rows[:, :-1], rows[:, 1:]

    def flops(self, weights):
        """As MLP, for each position; and attention, which has products without weights (all, also those masked)."""
        return self.length * (6 * weights + 12 * self.depth * self.width * self.length)


MODELS = {"mlp": MLP, "transformer": Transformer}
