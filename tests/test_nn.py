"""The perceptron and the data it is trained on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers import CompileCounter, data, nn
from helpers.oracle import assert_close, assert_equal, to64

init = jax.jit(nn.init_mlp, static_argnames=("sizes", "dtype"))


def apply64(params, x, activation=np.tanh):
    for layer in params[:-1]:
        x = activation(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


def test_the_parameters_are_a_list_of_plain_dicts_in_the_given_dtype():
    params = init(jax.random.key(0), (2, 5, 3), jnp.bfloat16)
    assert jax.tree.map(jnp.shape, params) == [
        {"w": (2, 5), "b": (5,)},
        {"w": (5, 3), "b": (3,)},
    ]
    assert not any(np.any(layer["b"]) for layer in params)
    out = jax.eval_shape(nn.apply_mlp, params, jnp.ones((4, 2), jnp.bfloat16))
    for leaf in [*jax.tree.leaves(params), out]:
        assert leaf.dtype == jnp.bfloat16


def test_keys_decide_the_weights_and_layers_differ():
    first, again, other = (init(jax.random.key(k), (4, 4, 4)) for k in (0, 0, 1))
    assert_equal(first, again)
    assert not np.allclose(first[0]["w"], other[0]["w"])
    assert not np.allclose(first[0]["w"], first[1]["w"])


def test_the_variance_is_one_over_the_number_of_inputs():
    (layer,) = init(jax.random.key(3), (400, 100))
    assert_close(np.var(to64(layer["w"])) * 400, 1.0, rtol=0.03)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_the_output_matches_float64_for_a_batch_and_for_one(activation):
    ours, theirs = {
        "tanh": (jnp.tanh, np.tanh),
        "relu": (jax.nn.relu, lambda x: np.maximum(x, 0.0)),
    }[activation]
    params = init(jax.random.key(1), (2, 16, 16, 3))
    x = np.random.default_rng(0).normal(size=(11, 2)).astype(np.float32)

    @jax.jit
    def both(params, x):
        rows = jax.vmap(lambda row: nn.apply_mlp(params, row, ours))(x)
        return nn.apply_mlp(params, x, ours), rows

    want = apply64(to64(params), to64(x), theirs)
    with jax.default_matmul_precision("highest"):
        assert_close(both(params, x), (want, want), rtol=1e-5, atol=1e-6)


def test_a_single_layer_is_affine():
    params = [{"w": np.float32([[1, 2], [3, 4]]), "b": np.float32([5, 6])}]
    got = jax.jit(nn.apply_mlp)(params, np.float32([[1, 1], [0, 0]]))
    assert_equal(got, [[9, 12], [5, 6]])


def test_the_spiral_has_its_arms_where_the_docstring_says():
    x, labels = data.spiral(jax.random.key(0), noise=0.0)
    assert x.shape == (720, 2) and x.dtype == jnp.float32
    assert labels.dtype == jnp.int32
    assert_equal(labels, np.repeat([0, 1, 2], 240))
    radius = np.linalg.norm(to64(x), axis=1)
    assert np.all(radius < 1) and radius.max() > 0.95
    angle = 2 * np.pi * to64(labels) / 3 + 4 * radius
    want = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    assert_close(x, want, rtol=0, atol=3e-6)


def test_the_noise_is_one_of_angle_with_the_given_deviation():
    noises = []
    for seed in range(10):
        x, labels = data.spiral(jax.random.key(seed), noise=0.2)
        wide = to64(x)
        centre = 2 * np.pi * to64(labels) / 3 + 4 * np.linalg.norm(wide, axis=1)
        noises.append(np.angle(np.exp(1j * (np.arctan2(wide[:, 1], wide[:, 0]) - centre))))
    assert_close(np.std(noises), 0.2, rtol=0.03)
    assert abs(np.mean(noises)) < 0.01


def test_the_spiral_is_one_program_for_all_keys_and_noises():
    with CompileCounter(only="spiral") as counter:
        first = data.spiral(jax.random.key(0), 7, 5, 0.1)
        again = data.spiral(jax.random.key(0), 7, 5, 0.1)
        other = data.spiral(jax.random.key(1), 7, 5, 0.3)
    assert counter.count == 1
    assert first[0].shape == (35, 2)
    assert_equal(again, first)
    assert not np.allclose(first[0], other[0])
