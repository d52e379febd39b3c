"""Compile a program; print how often JAX asked its compile cache, and how often that had the program."""

import json

import jax
import jax.monitoring
import jax.numpy as jnp

events = []
jax.monitoring.register_event_listener(lambda event, **_: events.append(event.rpartition("/")[2]))
jax.block_until_ready(jax.jit(lambda x: jnp.sort(jnp.sin(x) @ x))(jnp.ones((64, 64))))
asked, hits = events.count("compile_requests_use_cache"), events.count("cache_hits")
print(json.dumps({"asked": asked, "hits": hits, "platform": jax.default_backend()}))
