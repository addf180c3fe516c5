#!/usr/bin/env python3
"""Training steps with JAX; app.py documents the options.

    mlp   a network of dense layers, batches of changing sizes, jitted

XLA_PYTHON_CLIENT_ALLOCATOR=platform makes JAX allocate and free every array by itself."""
import os
import sys

import app

CASES = ("mlp",)


def open_device(options):
    if options.device == "cpu":
        os.environ["JAX_PLATFORMS"] = "cpu"
    else:
        # By default JAX takes three quarters of the device at once; peaks would be useless.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        flags = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{flags} --xla_gpu_deterministic_ops=true".strip()
    try:
        import jax
    except ImportError as error:
        app.leave(f"no JAX in Python: {error}")
    try:
        device = jax.devices()[0]
    except RuntimeError as error:
        app.leave(f"JAX finds no device: {error}")
    if options.device != "cpu" and device.platform not in ("gpu", "cuda"):
        app.leave(f"JAX finds no GPU: its device is {device.platform}")
    return jax, device


class Training:
    def __init__(self, jax, options):
        import jax.numpy as jnp
        self.jax, self.jnp = jax, jnp
        width, keys = max(64, int(2048 * options.scale)), jax.random.split(
            jax.random.PRNGKey(options.seed), 8)
        scale = (2.0 / width) ** 0.5
        self.state = [scale * jax.random.normal(key, (width, width)) for key in keys[:6]]
        self.batches = []
        for i in range(6):
            rows = 256 + 128 * (i % 3)
            self.batches.append(jax.random.normal(jax.random.fold_in(keys[6], i), (rows, width)))

        def loss(state, x):
            y = x
            for weight in state:
                y = jnp.tanh(y @ weight)
            return jnp.mean((y - x) ** 2)

        def update(state, x):
            value, slopes = jax.value_and_grad(loss)(state, x)
            return [w - 0.01 * s for w, s in zip(state, slopes)], value
        self.update = jax.jit(update)

    def step(self, number):
        # This operation is outside the jitted function: its array is freed at once.
        x = self.batches[number % len(self.batches)] * (1 + number % 7)
        self.state, value = self.update(self.state, x)
        return value


def main():
    options = app.options(__doc__, CASES)
    jax, device = open_device(options)
    work = Training(jax, options)
    fields = app.measure(options, "mlp", work.step, lambda: jax.block_until_ready(work.state))
    stats = device.memory_stats() or {}
    fields["peak"] = None
    if os.environ.get("XLA_PYTHON_CLIENT_ALLOCATOR", "default") in ("default", "bfc"):
        fields["peak"] = stats.get("peak_pool_bytes") or stats.get("pool_bytes") or \
            stats.get("peak_bytes_in_use")
    fields["device"] = device.device_kind
    fields["versions"] = {"jax": jax.__version__}
    app.tell(fields)


if __name__ == "__main__":
    sys.exit(main())
