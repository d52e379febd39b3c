"""Process 1 computes on its device for ever, and process 0 waits for it, without a collective."""

import jax
import jax.numpy as jnp


@jax.jit
def spin(x):
    # XLA does not know that the condition always holds.
    return jax.lax.while_loop(lambda state: state[0] < 2, lambda state: (state[0] * 0 + 1, jnp.sin(state[1])), (0, x))


jax.distributed.initialize()
value = jnp.ones(1)
print(f"platform {jax.default_backend()}", flush=True)
if jax.process_index():
    jax.block_until_ready(spin(value))  # spins
# Not an all-reduce: NCCL refuses two processes on one GPU.
jax._src.distributed.global_state.client.wait_at_barrier("end", 600_000)
