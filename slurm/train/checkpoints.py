"""Checkpoints that all processes write together, and from which a training resumes without being asked to."""

import jax
import numpy as np
from jax.experimental import multihost_utils
from orbax.checkpoint import v1 as ocp


class Checkpoints:
    """The checkpoints of a training in a folder that all nodes share; all processes make the same calls.

    A checkpoint has the state and the losses so far. Their number is the step, and the position in the data follows
    from it. No random number is drawn after the first step, so there is no key to save.
    """

    def __init__(self, folder, every):
        keep = ocp.training.preservation_policies.LatestN(3)
        self._checkpointer = ocp.training.Checkpointer(folder.absolute(), preservation_policy=keep)
        self._every = every

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._checkpointer.close()  # waits for the last one

    def resume(self, training):
        """Set the training to the newest complete checkpoint, if there is one.

        Process 0 decides which: on a shared disk, others may not see it yet, or see another one.
        """
        latest = self._checkpointer.latest
        step = int(multihost_utils.broadcast_one_to_all(np.int32(latest.step if latest else 0)))
        if step:
            state = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), training.state)
            found = self._checkpointer.load(step, {"state": state, "losses": np.empty(step, np.float32)})
            training.state, training.losses = found["state"], found["losses"].tolist()

    def save(self, training):
        """Save a checkpoint if it is due. Orbax renames it once all processes have written their parts."""
        step = len(training.losses)
        if step % self._every == 0:
            self._checkpointer.save_async(
                step, {"state": training.state, "losses": np.array(training.losses, np.float32)}, force=True
            )
