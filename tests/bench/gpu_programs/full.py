"""Ask a device for four times its memory."""

import jax
import jax.numpy as jnp

print(f"platform {jax.default_backend()}", flush=True)
stats = jax.devices()[0].memory_stats() or {}
memory = 4 * stats.get("bytes_limit", 1 << 44)  # without a limit, more than a machine has addresses for
jax.block_until_ready(jnp.zeros((memory >> 30, 1 << 30), jnp.uint8))  # too large
print("allocated")
