"""Batches of rows from NumPy files, for data parallelism, in NumPy alone.

Which rows a global batch has is a matter of the seed and the step. So all processes shuffle alike without a word to
each other, each reads its own rows only, and a program that goes on from a checkpoint needs no more than the step.
"""

import collections
import concurrent.futures
import functools
import pathlib

import numpy as np


@functools.lru_cache(maxsize=2)
def shuffled(rows, seed, epoch):
    """The order of the rows in an epoch, the same in every process."""
    return np.random.default_rng([seed, epoch]).permutation(rows)


class Loader:
    """The rows of all NumPy files of a folder, in global batches, in another order in each epoch."""

    def __init__(self, folder, batch_size, seed=0):
        # Mapped into memory: a row is read from its file when it is asked for.
        self.arrays = {file.stem: np.load(file, mmap_mode="r") for file in pathlib.Path(folder).glob("*.npy")}
        (self.rows,) = {len(array) for array in self.arrays.values()}  # the same in all files
        self.batch_size, self.seed = batch_size, seed
        self.steps_per_epoch = -(-self.rows // batch_size)
        self.rows_read = 0

    def load(self, step, positions=None):
        """Rows of the global batch of `step`: those at `positions` in it, or all; and the weight of each, 1 or 0.

        The last batch of an epoch is short. It is filled up with rows of weight 0, so it has the shape of the others:
        a process with another shape would run another program, and its collectives would hang or mix up numbers.
        """
        epoch, batch = divmod(step, self.steps_per_epoch)
        positions = np.arange(self.batch_size) if positions is None else positions
        places = batch * self.batch_size + positions
        rows = shuffled(self.rows, self.seed, epoch)[np.minimum(places, self.rows - 1)]
        self.rows_read += len(rows)
        loaded = {name: array[rows] for name, array in self.arrays.items()}
        return {**loaded, "weight": (places < self.rows).astype(np.float32)}


def prefetch(load, steps, depth=2):
    """Yield load(step) for each step, while a thread is at the next ones.

    `load` must not communicate: collectives have to run in the same order in all processes, and so in one thread.
    """
    waiting = collections.deque()
    with concurrent.futures.ThreadPoolExecutor(max_workers=1) as thread:
        for step in steps:
            waiting.append(thread.submit(load, step))
            if len(waiting) > depth:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
