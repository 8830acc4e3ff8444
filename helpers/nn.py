"""A multilayer perceptron as a plain pytree: a function that makes it, and one that applies it.

No classes and no registry: the parameters are data, and the model is a function of them.
"""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike

Dense = dict[str, Array]
"""One layer: "w" of shape (inputs, outputs) and "b" of shape (outputs,)."""


def init_mlp(key: Array, sizes: Sequence[int], dtype: DTypeLike = jnp.float32) -> list[Dense]:
    """Random weights, biases of zero.

    Args:
        key: from `jax.random.key`; the same key gives the same weights.
        sizes: units of each layer, inputs and outputs included; (2, 32, 3) makes two layers.

    Returns:
        One dict a layer. Weights are normal with variance 1 / inputs, which keeps the variance
        through layers of tanh (LeCun et al. 1998, "Efficient BackProp"); for relu multiply them
        by √2 (He et al. 2015).
    """
    keys = jax.random.split(key, len(sizes) - 1)
    return [
        {
            "w": jax.random.normal(k, (inputs, outputs), dtype) * inputs**-0.5,
            "b": jnp.zeros(outputs, dtype),
        }
        for k, inputs, outputs in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]


def apply_mlp(
    params: Sequence[Dense], x: Array, activation: Callable[[Array], Array] = jnp.tanh
) -> Array:
    """x through the layers, the activation between each two of them and none after the last.

    x: shape (..., inputs): one example or any batch of them. Returns shape (..., outputs).
    """
    for layer in params[:-1]:
        x = activation(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]
