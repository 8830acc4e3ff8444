"""Every optimizer step by step: against float64 written out by hand, and against optax."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from helpers import CompileCounter, optim, trees
from helpers.oracle import assert_close, assert_equal, to64

STEPS = 12


def draw(rng, scale, lead=()):
    """A vector and a matrix of normal numbers."""
    return {
        "b": (scale * rng.normal(size=(*lead, 3))).astype(np.float32),
        "w": (scale * rng.normal(size=(*lead, 2, 3))).astype(np.float32),
    }


def problem(seed, steps=STEPS):
    """Parameters, and a gradient for each step, stacked."""
    rng = np.random.default_rng(seed)
    return draw(rng, 1.0), draw(rng, 1.5, (steps,))


def race(*optimizers):
    """One program: (params, gradients) → for each optimizer the parameters after each step."""

    def follow(optimizer, params, gradients):
        def step(carry, gradient):
            updates, state = optimizer.update(gradient, carry[1], carry[0])
            params = optim.apply_updates(carry[0], updates)
            return (params, state), params

        return jax.lax.scan(step, (params, optimizer.init(params)), gradients)[1]

    def all_of(params, gradients):
        return [follow(optimizer, params, gradients) for optimizer in optimizers]

    return jax.jit(all_of)


# --- the same in float64, by hand: f(params, gradients) yields the parameters after each step -----


def sgd64(p, gradients, lr, momentum=0.0, nesterov=False):
    trace = 0.0
    for t, g in enumerate(gradients):
        trace = g + momentum * trace
        p = p - (lr(t) if callable(lr) else lr) * (g + momentum * trace if nesterov else trace)
        yield p


def adam64(p, gradients, lr, b1=0.9, b2=0.999, eps=1e-8, decay=0.0):
    m = v = 0.0
    for t, g in enumerate(gradients, 1):
        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * g**2
        direction = (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + eps)
        p = p - (lr(t - 1) if callable(lr) else lr) * (direction + decay * p)
        yield p


def warmup_cosine64(t, peak=0.02, warmup=4, total=10, start=0.001, end=0.002):
    if t < warmup:
        return start + (peak - start) * t / warmup
    done = min((t - warmup) / (total - warmup), 1.0)
    return end + (peak - end) * 0.5 * (1 + np.cos(np.pi * done))


OURS_SCHEDULE = optim.warmup_cosine(0.02, 4, 10, start=0.001, end=0.002)
OPTAX_SCHEDULE = optax.warmup_cosine_decay_schedule(0.001, 0.02, 4, 10, 0.002)
BOTH = {"b": True, "w": True}
WEIGHTS = {"b": False, "w": True}

OPTIMIZERS = {
    "sgd": (
        optim.sgd(0.1),
        optax.sgd(0.1),
        functools.partial(sgd64, lr=0.1),
        BOTH,
    ),
    "momentum": (
        optim.sgd(0.1, momentum=0.9),
        optax.sgd(0.1, momentum=0.9),
        functools.partial(sgd64, lr=0.1, momentum=0.9),
        BOTH,
    ),
    "nesterov": (
        optim.sgd(0.1, momentum=0.9, nesterov=True),
        optax.sgd(0.1, momentum=0.9, nesterov=True),
        functools.partial(sgd64, lr=0.1, momentum=0.9, nesterov=True),
        BOTH,
    ),
    "schedule": (
        optim.sgd(OURS_SCHEDULE),
        optax.sgd(OPTAX_SCHEDULE),
        functools.partial(sgd64, lr=warmup_cosine64),
        BOTH,
    ),
    "adam": (
        optim.adam(0.01),
        optax.adam(0.01),
        functools.partial(adam64, lr=0.01),
        BOTH,
    ),
    "adam, other constants": (
        optim.adam(OURS_SCHEDULE, b1=0.5, b2=0.9, eps=1e-3),
        optax.adam(OPTAX_SCHEDULE, b1=0.5, b2=0.9, eps=1e-3),
        functools.partial(adam64, lr=warmup_cosine64, b1=0.5, b2=0.9, eps=1e-3),
        BOTH,
    ),
    "adamw": (
        optim.adamw(0.01, weight_decay=0.1),
        optax.adamw(0.01, weight_decay=0.1),
        functools.partial(adam64, lr=0.01, decay=0.1),
        BOTH,
    ),
    "adamw, weights only": (
        optim.adamw(OURS_SCHEDULE, weight_decay=0.1, mask=optim.matrices),
        optax.adamw(OPTAX_SCHEDULE, weight_decay=0.1, mask=WEIGHTS),
        functools.partial(adam64, lr=warmup_cosine64, decay=0.1),
        WEIGHTS,
    ),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_step_is_optax_s_and_float64_s(name):
    ours, theirs, by_hand, decayed = OPTIMIZERS[name]
    both = race(ours, theirs)
    for seed in range(5):
        params, gradients = problem(seed)
        got, want = both(params, gradients)
        assert_close(got, to64(want), rtol=1e-6, atol=1e-6, label="optax")
        for leaf in params:
            undecayed = {} if decayed[leaf] else {"decay": 0.0}
            exact = list(by_hand(to64(params[leaf]), to64(gradients[leaf]), **undecayed))
            assert_close(got[leaf], exact, rtol=1e-6, atol=1e-6, label=f"float64 {leaf}")


def test_five_hundred_steps_stay_together():
    ours, theirs = optim.adamw(0.01, weight_decay=0.1), optax.adamw(0.01, weight_decay=0.1)
    got, want = race(ours, theirs)(*problem(7, steps=500))
    assert_close(got, to64(want), rtol=0, atol=1e-6)


def test_without_bias_correction_the_first_step_would_be_3_16_times_as_long():
    params, gradients = problem(0, steps=1)
    adam = optim.scale_by_adam()

    @jax.jit
    def ratio(params, g):
        updates, state = adam.update(g, adam.init(params), params)
        return jax.tree.map(lambda m, n, u: m / jnp.sqrt(n) / u, state.mu, state.nu, updates)

    seen = ratio(params, jax.tree.map(lambda g: g[0], gradients))
    assert_close(seen, jax.tree.map(lambda p: np.full(p.shape, 10**0.5), params), rtol=1e-4)


def test_adam_of_zero_gradients_stays_where_it_is():
    params, gradients = problem(0)
    (got,) = race(optim.adam(0.1))(params, jax.tree.map(np.zeros_like, gradients))
    assert_equal(got, jax.tree.map(lambda p: np.broadcast_to(p, (STEPS, *p.shape)), params))


def test_l2_before_adam_and_decay_behind_it_differ():
    params, gradients = problem(1)
    got, want, decoupled = race(
        optim.chain(optim.add_decayed_weights(0.1), optim.adam(0.01)),
        optax.chain(optax.add_decayed_weights(0.1), optax.adam(0.01)),
        optim.adamw(0.01, weight_decay=0.1),
    )(params, gradients)
    assert_close(got, to64(want), rtol=0, atol=1e-6)
    assert np.max(np.abs(to64(got["w"]) - to64(decoupled["w"]))) > 1e-3


# --- clipping ------------------------------------------------------------------------------------

global_norm, clip_to_norm = jax.jit(trees.global_norm), jax.jit(trees.clip_to_norm)


@pytest.mark.parametrize("limit", [0.5, 4.0, 1e3])
def test_clipping_matches_optax_and_the_length_is_the_limit(limit):
    params, gradients = problem(2)
    ours, theirs = optim.clip_by_global_norm(limit), optax.clip_by_global_norm(limit)
    got, want = race(ours, theirs)(params, gradients)
    assert_close(got, to64(want), rtol=1e-6, atol=1e-6)
    for t in range(STEPS):
        g = jax.tree.map(lambda leaf, t=t: leaf[t], gradients)
        length = np.sqrt(sum(np.sum(to64(leaf) ** 2) for leaf in g.values()))
        assert_close(global_norm(g), length, rtol=1e-6)
        clipped = clip_to_norm(g, limit)
        assert_close(global_norm(clipped), min(length, limit), rtol=1e-6)
        if length <= limit:
            assert_equal(clipped, g)


def test_zeros_stay_zeros_whatever_the_limit_and_nan_stays_nan():
    zeros = draw(np.random.default_rng(0), 0.0)
    for limit in (0.0, 1.0):
        assert_equal(clip_to_norm(zeros, limit), zeros)
    long = jax.tree.map(lambda leaf: leaf + 1, zeros)
    assert_equal(clip_to_norm(long, 0.0), zeros)
    assert_equal(global_norm({}), 0.0)
    nan = clip_to_norm(long | {"b": np.float32([0, np.nan, 0])}, 1e6)
    assert all(np.all(np.isnan(leaf)) for leaf in nan.values())
    assert np.isnan(clip_to_norm(long | {"b": np.float32([0, np.inf, 0])}, 1.0)["b"][1])


def test_a_norm_in_float16_does_not_overflow():
    x = [np.full(4, 300.0, np.float16)]
    assert_equal(global_norm(x), 600.0)
    clipped = clip_to_norm(x, 1.0)[0]
    assert clipped.dtype == jnp.float16
    assert_close(clipped, np.full(4, 0.5), rtol=1e-3)


# --- schedules and compilation -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("warmup", "total", "start", "end"), [(4, 10, 0.001, 0.002), (0, 5, 0.0, 0.0), (1, 3, 0.5, 0.1)]
)
def test_warmup_cosine_is_optax_s(warmup, total, start, end):
    ours = optim.warmup_cosine(0.05, warmup, total, start, end)
    theirs = optax.warmup_cosine_decay_schedule(start, 0.05, warmup, total, end)
    both = jax.jit(lambda steps: (ours(steps), theirs(steps)))
    with CompileCounter(only="<lambda>") as counter:
        seen = [both(t) for t in range(total + 3)]
    assert counter.count == 1
    assert seen[0][0].dtype == jnp.float32
    exact = [warmup_cosine64(t, 0.05, warmup, total, start, end) for t in range(total + 3)]
    assert_close([one for one, _ in seen], exact, rtol=1e-5, atol=1e-8)
    assert_close([one for _, one in seen], exact, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize(("warmup", "total"), [(-1, 5), (5, 5), (6, 5)])
def test_a_schedule_that_ends_before_it_begins_is_refused(warmup, total):
    with pytest.raises(ValueError, match="warmup_steps < total_steps"):
        optim.warmup_cosine(0.1, warmup, total)


def test_a_schedule_compiles_once_and_a_dynamic_learning_rate_too():
    params, gradients = problem(0)
    scheduled = optim.adamw(OURS_SCHEDULE)

    @jax.jit
    def step(params, state, gradients, lr):
        g = jax.tree.map(lambda g: g[0], gradients)
        updates, state = scheduled.update(g, state, params)
        plain, _ = optim.scale_by_learning_rate(lr).update(g, (), params)
        return optim.apply_updates(params, updates), state, plain

    state = jax.jit(scheduled.init)(params)
    with CompileCounter(only="step") as counter:
        moved = jax.tree.map(jnp.asarray, params)
        for lr in (0.1, 0.2, 0.3):
            moved, state, plain = step(moved, state, gradients, lr)
            assert_close(plain["w"], -lr * to64(gradients["w"][0]), rtol=1e-6)
    assert counter.count == 1


def test_it_works_under_vmap():
    optimizer = OPTIMIZERS["adamw, weights only"][0]
    several = [problem(seed) for seed in range(3)]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *several)
    one = race(optimizer)
    (together,) = jax.jit(jax.vmap(one))(*stacked)
    for i, (params, gradients) in enumerate(several):
        alone = to64(one(params, gradients)[0])
        assert_close(jax.tree.map(lambda p, i=i: p[i], together), alone, rtol=0, atol=1e-6)


def test_no_two_leaves_of_a_fresh_state_share_a_buffer():
    """Or the state could not be donated."""
    params = {"w": jnp.ones((64, 64)), "b": jnp.ones(64)}
    leaves = [params, optim.adamw(OURS_SCHEDULE).init(params), optim.trace(0.9).init(params)]
    pointers = [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(leaves)]
    assert len(set(pointers)) == len(pointers)


# --- protocol and dtypes -------------------------------------------------------------------------


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_parameters_updates_and_moments_keep_their_dtype(name, dtype):
    params = {"b": jnp.ones(3, dtype), "w": jnp.ones((2, 3), dtype)}
    optimizer = optim.chain(optim.clip_by_global_norm(1.0), OPTIMIZERS[name][0])
    state = optimizer.init(params)

    def step(params, state):
        updates, new = optimizer.update(params, state, params)
        return updates, new, optim.apply_updates(params, updates)

    updates, new, moved = jax.eval_shape(step, params, state)
    for tree in (updates, moved):
        assert jax.tree.map(lambda x: x.dtype.name, tree) == {"b": dtype, "w": dtype}
    assert jax.tree.map(lambda x: (x.shape, x.dtype), new) == jax.tree.map(
        lambda x: (x.shape, x.dtype), state
    )


def test_a_learning_rate_array_does_not_widen_bfloat16_parameters():
    def update(params, lr):
        return optim.sgd(lr).update(params, (), params)[0]

    for lr in (np.float32(0.5), jnp.float32(0.5), 0.5):
        updates = jax.eval_shape(update, {"w": jnp.ones(3, jnp.bfloat16)}, lr)
        assert updates["w"].dtype == jnp.bfloat16


def test_optax_s_transformations_fit_into_our_chain_and_ours_into_optax_s():
    decay = 1e-4
    last = optim.scale_by_learning_rate(0.01)
    want, mixed, theirs = race(
        optax.adamw(0.01, weight_decay=decay),
        optim.chain(optax.scale_by_adam(), optim.add_decayed_weights(decay), last),
        optax.chain(optim.scale_by_adam(), optax.add_decayed_weights(decay), last),
    )(*problem(5))
    assert_close([mixed, theirs], to64([want, want]), rtol=0, atol=1e-6)


def test_a_chain_with_a_state_of_another_length_is_refused():
    params, _ = problem(0)
    optimizer = optim.chain(optim.trace(0.9), optim.scale(-0.1))
    with pytest.raises(ValueError, match=r"zip\(\)"):
        jax.eval_shape(lambda p: optimizer.update(p, optimizer.init(p)[:1], p), params)
