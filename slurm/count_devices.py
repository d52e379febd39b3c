"""Who sees how much: each process prints 'I am p, I see LOCAL/GLOBAL devices', with the two counts."""

import jax

jax.distributed.initialize()

print(f"I am {jax.process_index()}, I see {jax.local_device_count()}/{jax.device_count()} devices")
