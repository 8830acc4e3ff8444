"""Chapter 03 · Choosing a derivative: right answers written differently, and wrong ones.

Cells in percent format, parsed and never imported: see `autograder.course.parse_answers`.
"""


# %% 3.1 right: eval_shape and sizes
def jacobian(f, x):
    outputs = jax.eval_shape(f, x).size
    return (jax.jacfwd if jnp.size(x) <= outputs else jax.jacrev)(f)(x)


# %% 3.1 right: products of shapes, a vmap over basis vectors
import math


def jacobian(f, x):
    n = math.prod(x.shape)
    out = jax.eval_shape(f, x)
    m = math.prod(out.shape)
    if n < m:
        basis = jnp.reshape(jnp.eye(n, dtype=x.dtype), (n, *x.shape))
        columns = jax.vmap(lambda t: jax.jvp(f, (x,), (t,))[1], out_axes=-1)(basis)
        return jnp.reshape(columns, out.shape + x.shape)
    _, pull = jax.vjp(f, x)
    basis = jnp.reshape(jnp.eye(m, dtype=out.dtype), (m, *out.shape))
    return jnp.reshape(jax.vmap(pull)(basis)[0], out.shape + x.shape)


# %% 3.1 right: make_jaxpr, linearize, jitted by shape
def jacobian(f, x):
    (out,) = jax.make_jaxpr(f)(x).out_avals
    if x.size > out.size:
        return jax.jit(jax.jacrev(f))(x)
    _, push = jax.linearize(f, x)
    directions = jnp.eye(x.size).reshape(x.size, *x.shape)
    pushed = jnp.stack([push(direction) for direction in directions], axis=-1)
    return pushed.reshape(out.shape + x.shape)


# %% 3.1 wrong: always forward
# `jacfwd` pushes one direction for each input. Where the outputs are fewer, reverse mode needs
# fewer passes.
# see: 3.3
def jacobian(f, x):
    return jax.jacfwd(f)(x)


# %% 3.1 wrong: always reverse
# `jax.jacobian` is another name of `jax.jacrev`: it chooses nothing. It pulls one row for each
# output, and can't go through a while_loop.
# see: 3.3
def jacobian(f, x):
    return jax.jacobian(f)(x)


# %% 3.1 wrong: the two modes swapped
# Forward mode builds the Jacobian column by column, a pass for each input; so it is the one for few
# inputs.
# see: 3.2
def jacobian(f, x):
    outputs = jax.eval_shape(f, x).size
    return (jax.jacrev if x.size <= outputs else jax.jacfwd)(f)(x)


# %% 3.1 wrong: the length of the first axis for the size
# A (2, 5) matrix has 10 numbers, and 10 directions to push, but a length of 2. Compare sizes.
# see: 3.3
def jacobian(f, x):
    out = jax.eval_shape(f, x)
    inputs = x.shape[0] if x.shape else 1
    outputs = out.shape[0] if out.shape else 1
    return (jax.jacfwd if inputs <= outputs else jax.jacrev)(f)(x)


# %% 3.1 wrong: the number of axes for the size
# `ndim` counts axes, not numbers: six inputs and two outputs have one axis each.
# see: 3.3
def jacobian(f, x):
    out = jax.eval_shape(f, x)
    return (jax.jacfwd if x.ndim <= out.ndim else jax.jacrev)(f)(x)


# %% 3.1 wrong: reverse for a scalar result only
# "Reverse for losses, forward for the rest" is the rule of thumb for a gradient. Two outputs of six
# inputs are still cheaper in reverse.
# see: 3.3
def jacobian(f, x):
    return (jax.jacfwd if jax.eval_shape(f, x).size > 1 else jax.jacrev)(f)(x)


# %% 3.1 wrong: runs f for the shape of its result
# The choice is right, but `f(x)` runs the whole function just to look at its shape.
# `jax.eval_shape(f, x)` traces it and computes nothing.
# see: 3.3
def jacobian(f, x):
    return (jax.jacfwd if x.size <= f(x).size else jax.jacrev)(f)(x)


# %% 3.1 wrong: tries reverse mode, and forward where that fails
# An error says that a mode can't, never that it costs more: where both can, this is always reverse.
# see: 3.3
def jacobian(f, x):
    try:
        return jax.jacrev(f)(x)
    except ValueError:
        return jax.jacfwd(f)(x)


# %% 3.1 wrong: the directions in front
# `vmap` puts the axis of the directions first, so forward mode's columns come out as rows. Move it
# behind the axes of the output.
# see: 3.2
def jacobian(f, x):
    if x.size > jax.eval_shape(f, x).size:
        return jax.jacrev(f)(x)
    basis = jnp.eye(x.size).reshape(x.size, *x.shape)
    columns = jax.vmap(lambda t: jax.jvp(f, (x,), (t,))[1])(basis)
    return columns.reshape(*x.shape, *columns.shape[1:])


# %% 3.1 wrong: a flat matrix, whatever the shapes
# Both modes work on flat vectors here, and the axes of `f(x)` and `x` are never given back.
# see: 3.2
def jacobian(f, x):
    def flat(y):
        return f(y.reshape(x.shape)).ravel()

    outputs = jax.eval_shape(f, x).size
    return (jax.jacfwd if x.size <= outputs else jax.jacrev)(flat)(x.ravel())


# %% 3.2 right: while_loop, and HVPs of the chapter
def conjugate_gradient(matvec, b, steps):
    limit = 1e-12 * jnp.vdot(b, b)

    def going(state):
        step, _, r, _, bent = state
        return (step < steps) & (jnp.vdot(r, r) > limit) & ~bent

    def advance(state):
        step, x, r, p, _ = state
        product = matvec(p)
        curvature = jnp.vdot(p, product)
        bent = curvature <= 0
        alpha = jnp.vdot(r, r) / jnp.where(bent, 1.0, curvature)
        fresh = r - alpha * product
        beta = jnp.vdot(fresh, fresh) / jnp.vdot(r, r)
        stay = jnp.where(step == 0, b, x)
        return step + 1, jnp.where(bent, stay, x + alpha * p), fresh, fresh + beta * p, bent

    start = (0, jnp.zeros_like(b), b, b, jnp.array(False))
    return jax.lax.while_loop(going, advance, start)[1]


def newton_cg_step(f, x, steps):
    slope = jax.grad(f)(x)
    return x + conjugate_gradient(lambda v: hvp_forward_over_reverse(f, x, v), -slope, steps)


# %% 3.2 right: a Python loop that masks what is done; linearize
def conjugate_gradient(matvec, b, steps):
    x, r, p = jnp.zeros_like(b), b, b
    alive = jnp.sum(b * b) > 0
    smallest = 1e-12 * jnp.sum(b * b)
    for k in range(steps):
        ap = matvec(p)
        rr, curved = jnp.sum(r * r), jnp.sum(p * ap)
        alive = alive & (rr > smallest)
        good = alive & (curved > 0)
        x = jnp.where(alive & ~good & (k == 0), b, x)
        alpha = jnp.where(good, rr / jnp.where(good, curved, 1), 0)
        x = x + alpha * p
        r = r - alpha * ap
        p = jnp.where(good, r + jnp.sum(r * r) / jnp.where(good, rr, 1) * p, p)
        alive = good
    return x


def newton_cg_step(f, x, steps):
    slope, hessian_times = jax.linearize(jax.grad(f), x)
    return x + conjugate_gradient(hessian_times, -slope, steps)


# %% 3.2 right: a scan with cond, the residual of -b, reverse over forward
def conjugate_gradient(matvec, b, steps):
    def forward(state):
        x, r, p, first = state
        ap = matvec(p)
        d = p @ ap

        def step(_):
            a = (r @ r) / d
            new = r + a * ap
            return x + a * p, new, -new + (new @ new) / (r @ r) * p, False, True

        def leave(_):
            return jnp.where(first, p, x), r, p, False, False

        return jax.lax.cond(d > 0, step, leave, None)

    def body(state, _):
        *inner, alive = state
        alive = alive & (jnp.linalg.norm(inner[1]) > 1e-6 * jnp.linalg.norm(b))
        return jax.lax.cond(alive, forward, lambda s: (*s, False), tuple(inner)), None

    start = (jnp.zeros(b.shape, b.dtype), -b, b, True, True)
    return jax.lax.scan(body, start, None, length=steps)[0][0]


def newton_cg_step(f, x, steps):
    def product(v):
        return jax.grad(lambda y: jnp.vdot(jax.grad(f)(y), v))(x)

    return x + conjugate_gradient(product, -jax.grad(f)(x), steps)


# %% 3.2 wrong: always goes along the residual
# That is steepest descent: it forgets where it has been. Conjugate gradient adds β times the old
# direction to the residual.
# see: 3.8
def conjugate_gradient(matvec, b, steps):
    x, r = jnp.zeros_like(b), b
    alive = True
    for k in range(steps):
        ap, rr = matvec(r), r @ r
        curved = r @ ap
        alive = alive & (rr > 1e-12 * (b @ b))
        good = alive & (curved > 0)
        x = jnp.where(alive & ~good & (k == 0), b, x)
        alpha = jnp.where(good, rr / jnp.where(good, curved, 1.0), 0.0)
        x, r, alive = x + alpha * r, r - alpha * ap, good
    return x


def newton_cg_step(f, x, steps):
    slope, product = jax.linearize(jax.grad(f), x)
    return x + conjugate_gradient(product, -slope, steps)


# %% 3.2 wrong: β upside down
# β is the new residual's square over the old one's, a small number. Its inverse blows the old
# direction up.
# see: 3.8
def conjugate_gradient(matvec, b, steps):
    x, r, p = jnp.zeros_like(b), b, b
    alive = True
    for k in range(steps):
        ap, rr = matvec(p), r @ r
        curved = p @ ap
        alive = alive & (rr > 1e-12 * (b @ b))
        good = alive & (curved > 0)
        x = jnp.where(alive & ~good & (k == 0), b, x)
        alpha = jnp.where(good, rr / jnp.where(good, curved, 1.0), 0.0)
        x, r = x + alpha * p, r - alpha * ap
        p = jnp.where(good, r + rr / jnp.maximum(r @ r, 1e-30) * p, p)
        alive = good
    return x


def newton_cg_step(f, x, steps):
    slope, product = jax.linearize(jax.grad(f), x)
    return x + conjugate_gradient(product, -slope, steps)


# %% 3.2 wrong: no guard at all
# Once the residual is 0, α and β are 0 / 0, and the solution that was already there becomes NaN.
# Negative curvature turns α's sign, and the iteration climbs.
# see: 3.8
def conjugate_gradient(matvec, b, steps):
    def body(_, state):
        x, r, p = state
        ap = matvec(p)
        alpha = (r @ r) / (p @ ap)
        fresh = r - alpha * ap
        return x + alpha * p, fresh, fresh + (fresh @ fresh) / (r @ r) * p

    return jax.lax.fori_loop(0, steps, body, (jnp.zeros_like(b), b, b))[0]


def newton_cg_step(f, x, steps):
    slope = jax.grad(f)(x)
    return x + conjugate_gradient(lambda v: hvp_forward_over_reverse(f, x, v), -slope, steps)


# %% 3.2 wrong: the library's CG, which takes every matrix for positive definite
# `jax.scipy.sparse.linalg.cg` does not look at the sign of pᵀAp: where the curvature is negative
# it walks uphill. Away from a minimum a Hessian has such directions. A loop of your own that
# watches the residual only does the same.
# see: 3.8
def conjugate_gradient(matvec, b, steps):
    return jax.scipy.sparse.linalg.cg(matvec, b, tol=1e-6, maxiter=steps)[0]


def newton_cg_step(f, x, steps):
    slope = jax.grad(f)(x)
    return x + conjugate_gradient(lambda v: hvp_forward_over_reverse(f, x, v), -slope, steps)


# %% 3.2 wrong: takes |curvature| and goes on
# With the sign of the curvature taken away α is positive again, but A is no longer the matrix that
# the directions are conjugate in. Stop, and return what was good.
# see: 3.8
def conjugate_gradient(matvec, b, steps):
    limit = 1e-12 * (b @ b)

    def advance(state):
        step, x, r, p = state
        ap = matvec(p)
        alpha = (r @ r) / jnp.abs(p @ ap)
        fresh = r - alpha * ap
        return step + 1, x + alpha * p, fresh, fresh + (fresh @ fresh) / (r @ r) * p

    def going(state):
        return (state[0] < steps) & (state[2] @ state[2] > limit)

    return jax.lax.while_loop(going, advance, (0, jnp.zeros_like(b), b, b))[1]


def newton_cg_step(f, x, steps):
    slope = jax.grad(f)(x)
    return x + conjugate_gradient(lambda v: hvp_forward_over_reverse(f, x, v), -slope, steps)


# %% 3.2 wrong: stops below 0, not at 0
# Where A·p is 0, α is a number over 0. Stop at curvature that is not positive, 0 included.
# see: 3.8
def conjugate_gradient(matvec, b, steps):
    limit = 1e-12 * (b @ b)

    def advance(state):
        step, x, r, p, _ = state
        ap = matvec(p)
        bent = p @ ap < 0
        alpha = (r @ r) / (p @ ap)
        fresh = r - alpha * ap
        x = jnp.where(bent, jnp.where(step == 0, b, x), x + alpha * p)
        return step + 1, x, fresh, fresh + (fresh @ fresh) / (r @ r) * p, bent

    def going(state):
        return (state[0] < steps) & (state[2] @ state[2] > limit) & ~state[4]

    return jax.lax.while_loop(going, advance, (0, jnp.zeros_like(b), b, b, False))[1]


def newton_cg_step(f, x, steps):
    slope = jax.grad(f)(x)
    return x + conjugate_gradient(lambda v: hvp_forward_over_reverse(f, x, v), -slope, steps)


# %% 3.2 wrong: no step where the first curvature is negative
# It stops in time, but at 0: Newton then stays where it is, on a slope. In the first iteration
# return b, the way downhill.
# see: 3.8
def conjugate_gradient(matvec, b, steps):
    limit = 1e-12 * (b @ b)

    def advance(state):
        step, x, r, p, _ = state
        ap = matvec(p)
        bent = p @ ap <= 0
        alpha = jnp.where(bent, 0.0, (r @ r) / (p @ ap))
        fresh = r - alpha * ap
        return step + 1, x + alpha * p, fresh, fresh + (fresh @ fresh) / (r @ r) * p, bent

    def going(state):
        return (state[0] < steps) & (state[2] @ state[2] > limit) & ~state[4]

    return jax.lax.while_loop(going, advance, (0, jnp.zeros_like(b), b, b, False))[1]


def newton_cg_step(f, x, steps):
    slope = jax.grad(f)(x)
    return x + conjugate_gradient(lambda v: hvp_forward_over_reverse(f, x, v), -slope, steps)


# %% 3.2 wrong: takes the step of negative curvature before it stops
# The stop comes one line too late: α is already negative, and x has moved by it. Look at the
# curvature before you move.
# see: 3.8
def conjugate_gradient(matvec, b, steps):
    limit = 1e-12 * (b @ b)

    def advance(state):
        step, x, r, p, _ = state
        ap = matvec(p)
        alpha = (r @ r) / (p @ ap)
        fresh = r - alpha * ap
        return step + 1, x + alpha * p, fresh, fresh + (fresh @ fresh) / (r @ r) * p, p @ ap <= 0

    def going(state):
        return (state[0] < steps) & (state[2] @ state[2] > limit) & ~state[4]

    return jax.lax.while_loop(going, advance, (0, jnp.zeros_like(b), b, b, False))[1]


def newton_cg_step(f, x, steps):
    slope = jax.grad(f)(x)
    return x + conjugate_gradient(lambda v: hvp_forward_over_reverse(f, x, v), -slope, steps)


# %% 3.2 wrong: an absolute tolerance
# A residual below 1e-6 is not small where b itself is: the loop ends before it begins. Compare with
# the size of b.
# see: 3.8
def conjugate_gradient(matvec, b, steps):
    def advance(state):
        step, x, r, p, _ = state
        ap = matvec(p)
        bent = p @ ap <= 0
        alpha = (r @ r) / jnp.where(bent, 1.0, p @ ap)
        fresh = r - alpha * ap
        x = jnp.where(bent, jnp.where(step == 0, b, x), x + alpha * p)
        return step + 1, x, fresh, fresh + (fresh @ fresh) / (r @ r) * p, bent

    def going(state):
        return (state[0] < steps) & (state[2] @ state[2] > 1e-6) & ~state[4]

    return jax.lax.while_loop(going, advance, (0, jnp.zeros_like(b), b, b, False))[1]


def newton_cg_step(f, x, steps):
    slope = jax.grad(f)(x)
    return x + conjugate_gradient(lambda v: hvp_forward_over_reverse(f, x, v), -slope, steps)


# %% 3.2 wrong: an absolute tolerance on the length
# The length of the residual is compared with 1e-6 itself. A `b` of size 1e-7 is below that before
# the first iteration, and the answer is 0. Compare with 1e-6 times the length of `b`.
# see: 3.8
def conjugate_gradient(matvec, b, steps):
    def advance(state):
        step, x, r, p, _ = state
        ap = matvec(p)
        bent = p @ ap <= 0
        alpha = (r @ r) / jnp.where(bent, 1.0, p @ ap)
        fresh = r - alpha * ap
        x = jnp.where(bent, jnp.where(step == 0, b, x), x + alpha * p)
        return step + 1, x, fresh, fresh + (fresh @ fresh) / (r @ r) * p, bent

    def going(state):
        return (state[0] < steps) & (jnp.linalg.norm(state[2]) > 1e-6) & ~state[4]

    return jax.lax.while_loop(going, advance, (0, jnp.zeros_like(b), b, b, False))[1]


def newton_cg_step(f, x, steps):
    slope = jax.grad(f)(x)
    return x + conjugate_gradient(lambda v: hvp_forward_over_reverse(f, x, v), -slope, steps)


# %% 3.2 wrong: a thousandth is enough
# 1e-6 is a bound on the *length* of the residual. On its square it is 1e-12: with 1e-6 the loop
# stops at a thousandth of `b`. Along an eigenvector with a small eigenvalue a small residual is a
# large error.
# see: 3.8
def conjugate_gradient(matvec, b, steps):
    def advance(state):
        step, x, r, p, _ = state
        ap = matvec(p)
        bent = p @ ap <= 0
        alpha = (r @ r) / jnp.where(bent, 1.0, p @ ap)
        fresh = r - alpha * ap
        x = jnp.where(bent, jnp.where(step == 0, b, x), x + alpha * p)
        return step + 1, x, fresh, fresh + (fresh @ fresh) / (r @ r) * p, bent

    def going(state):
        return (state[0] < steps) & (state[2] @ state[2] > 1e-6 * (b @ b)) & ~state[4]

    return jax.lax.while_loop(going, advance, (0, jnp.zeros_like(b), b, b, False))[1]


def newton_cg_step(f, x, steps):
    slope = jax.grad(f)(x)
    return x + conjugate_gradient(lambda v: hvp_forward_over_reverse(f, x, v), -slope, steps)


# %% 3.2 wrong: `b` whenever the curvature is not positive
# `b` is the answer only if that happens in the first iteration, where x is still 0. Later x is
# better than `b`: return it as it is.
# see: 3.8
def conjugate_gradient(matvec, b, steps):
    def advance(state):
        step, x, r, p, _ = state
        ap = matvec(p)
        bent = p @ ap <= 0
        alpha = (r @ r) / jnp.where(bent, 1.0, p @ ap)
        fresh = r - alpha * ap
        x = jnp.where(bent, b, x + alpha * p)
        return step + 1, x, fresh, fresh + (fresh @ fresh) / (r @ r) * p, bent

    def going(state):
        return (state[0] < steps) & (state[2] @ state[2] > 1e-12 * (b @ b)) & ~state[4]

    return jax.lax.while_loop(going, advance, (0, jnp.zeros_like(b), b, b, False))[1]


def newton_cg_step(f, x, steps):
    slope = jax.grad(f)(x)
    return x + conjugate_gradient(lambda v: hvp_forward_over_reverse(f, x, v), -slope, steps)


# %% 3.2 wrong: goes on until nothing is left
# In float32 a residual is hardly ever 0. What is left points anywhere, and where there is little
# curvature one more iteration carries x far away. Stop at a millionth of b.
# see: 3.8
def conjugate_gradient(matvec, b, steps):
    def going(state):
        step, _, r, _, bent = state
        return (step < steps) & (jnp.vdot(r, r) > 0) & ~bent

    def advance(state):
        step, x, r, p, _ = state
        product = matvec(p)
        curvature = jnp.vdot(p, product)
        bent = curvature <= 0
        alpha = jnp.vdot(r, r) / jnp.where(bent, 1.0, curvature)
        fresh = r - alpha * product
        beta = jnp.vdot(fresh, fresh) / jnp.vdot(r, r)
        stay = jnp.where(step == 0, b, x)
        return step + 1, jnp.where(bent, stay, x + alpha * p), fresh, fresh + beta * p, bent

    start = (0, jnp.zeros_like(b), b, b, jnp.array(False))
    return jax.lax.while_loop(going, advance, start)[1]


def newton_cg_step(f, x, steps):
    slope = jax.grad(f)(x)
    return x + conjugate_gradient(lambda v: hvp_forward_over_reverse(f, x, v), -slope, steps)


# %% 3.2 wrong: one iteration too many
# `steps` iterations are asked for, and one more is done: the point is the best of k + 1 products.
# see: 3.8
def conjugate_gradient(matvec, b, steps):
    limit = 1e-12 * (b @ b)

    def advance(state):
        step, x, r, p, _ = state
        ap = matvec(p)
        bent = p @ ap <= 0
        alpha = (r @ r) / jnp.where(bent, 1.0, p @ ap)
        fresh = r - alpha * ap
        x = jnp.where(bent, jnp.where(step == 0, b, x), x + alpha * p)
        return step + 1, x, fresh, fresh + (fresh @ fresh) / (r @ r) * p, bent

    def going(state):
        return (state[0] <= steps) & (state[2] @ state[2] > limit) & ~state[4]

    return jax.lax.while_loop(going, advance, (0, jnp.zeros_like(b), b, b, False))[1]


def newton_cg_step(f, x, steps):
    slope = jax.grad(f)(x)
    return x + conjugate_gradient(lambda v: hvp_forward_over_reverse(f, x, v), -slope, steps)


# %% 3.2 wrong: solves for the gradient, and adds it
# Newton's equation is H·p = −∇f. With +∇f on the right the step goes uphill.
# see: 3.8
def conjugate_gradient(matvec, b, steps):
    limit = 1e-12 * (b @ b)

    def advance(state):
        step, x, r, p, _ = state
        ap = matvec(p)
        bent = p @ ap <= 0
        alpha = (r @ r) / jnp.where(bent, 1.0, p @ ap)
        fresh = r - alpha * ap
        x = jnp.where(bent, jnp.where(step == 0, b, x), x + alpha * p)
        return step + 1, x, fresh, fresh + (fresh @ fresh) / (r @ r) * p, bent

    def going(state):
        return (state[0] < steps) & (state[2] @ state[2] > limit) & ~state[4]

    return jax.lax.while_loop(going, advance, (0, jnp.zeros_like(b), b, b, False))[1]


def newton_cg_step(f, x, steps):
    slope = jax.grad(f)(x)
    return x + conjugate_gradient(lambda v: hvp_forward_over_reverse(f, x, v), slope, steps)


# %% 3.2 wrong: returns the step, not the point
# What comes out of the solver is the way to go; the new point is `x` plus it.
# see: 3.8
def conjugate_gradient(matvec, b, steps):
    limit = 1e-12 * (b @ b)

    def advance(state):
        step, x, r, p, _ = state
        ap = matvec(p)
        bent = p @ ap <= 0
        alpha = (r @ r) / jnp.where(bent, 1.0, p @ ap)
        fresh = r - alpha * ap
        x = jnp.where(bent, jnp.where(step == 0, b, x), x + alpha * p)
        return step + 1, x, fresh, fresh + (fresh @ fresh) / (r @ r) * p, bent

    def going(state):
        return (state[0] < steps) & (state[2] @ state[2] > limit) & ~state[4]

    return jax.lax.while_loop(going, advance, (0, jnp.zeros_like(b), b, b, False))[1]


def newton_cg_step(f, x, steps):
    slope = jax.grad(f)(x)
    return conjugate_gradient(lambda v: hvp_forward_over_reverse(f, x, v), -slope, steps)


# %% 3.2 wrong: forms the Hessian for its products
# The step is right, but `jax.hessian(f)(x)` is a matrix of n² numbers, and only its products are
# needed.
# see: 3.7
def conjugate_gradient(matvec, b, steps):
    limit = 1e-12 * (b @ b)

    def advance(state):
        step, x, r, p, _ = state
        ap = matvec(p)
        bent = p @ ap <= 0
        alpha = (r @ r) / jnp.where(bent, 1.0, p @ ap)
        fresh = r - alpha * ap
        x = jnp.where(bent, jnp.where(step == 0, b, x), x + alpha * p)
        return step + 1, x, fresh, fresh + (fresh @ fresh) / (r @ r) * p, bent

    def going(state):
        return (state[0] < steps) & (state[2] @ state[2] > limit) & ~state[4]

    return jax.lax.while_loop(going, advance, (0, jnp.zeros_like(b), b, b, False))[1]


def newton_cg_step(f, x, steps):
    hessian = jax.hessian(f)(x)
    return x + conjugate_gradient(lambda v: hessian @ v, -jax.grad(f)(x), steps)


# %% 3.2 wrong: Python's `if` on a traced residual
# Inside jit the residual has no value yet, so Python can't branch on it. Use `lax.while_loop`, or
# go on with `jnp.where`.
# see: 3.8
def conjugate_gradient(matvec, b, steps):
    x, r, p = jnp.zeros_like(b), b, b
    for _ in range(steps):
        if jnp.linalg.norm(r) <= 1e-6 * jnp.linalg.norm(b):
            break
        ap = matvec(p)
        if p @ ap <= 0:
            break
        alpha = (r @ r) / (p @ ap)
        fresh = r - alpha * ap
        x, p, r = x + alpha * p, fresh + (fresh @ fresh) / (r @ r) * p, fresh
    return x


def newton_cg_step(f, x, steps):
    slope = jax.grad(f)(x)
    return x + conjugate_gradient(lambda v: hvp_forward_over_reverse(f, x, v), -slope, steps)


# %% 3.3 right: push, curve, pull
def gauss_newton_product(predict, loss, w, v):
    z, pushed = jax.jvp(predict, (w,), (v,))
    _, curved = jax.jvp(jax.grad(loss), (z,), (pushed,))
    _, pull = jax.vjp(predict, w)
    return pull(curved)[0]


# %% 3.3 right: linearize and its transpose
def gauss_newton_product(predict, loss, w, v):
    z, push = jax.linearize(predict, w)
    pull = jax.linear_transpose(push, w)
    (answer,) = pull(hvp_reverse_over_reverse(loss, z, push(v)))
    return answer


# %% 3.3 right: the Hessian of the loss behind the linearized model
def gauss_newton_product(predict, loss, w, v):
    z, push = jax.linearize(predict, w)

    def model(u):
        return loss(z + push(u))

    zero = jax.tree.map(jnp.zeros_like, w)
    return jax.jvp(jax.grad(model), (zero,), (v,))[1]


# %% 3.3 wrong: the whole Hessian
# That is the Hessian of loss ∘ predict. Gauss–Newton leaves out the model's own curvature, and so
# stays positive semidefinite.
# see: 3.9
def gauss_newton_product(predict, loss, w, v):
    return jax.jvp(jax.grad(lambda w: loss(predict(w))), (w,), (v,))[1]


# %% 3.3 wrong: JᵀJ for every loss
# JᵀJ is right for half a sum of squares, whose Hessian is I. Another loss's Hessian stands between
# Jᵀ and J.
# see: 3.9
def gauss_newton_product(predict, loss, w, v):
    _, pushed = jax.jvp(predict, (w,), (v,))
    return jax.vjp(predict, w)[1](pushed)[0]


# %% 3.3 wrong: the outer product of the gradient
# g·(gᵀv) is the empirical Fisher matrix of one example: it has rank 1, and vanishes where the
# gradient does.
# see: 3.9
def gauss_newton_product(predict, loss, w, v):
    gradient = jax.grad(lambda w: loss(predict(w)))(w)
    parts = jax.tree.map(jnp.vdot, gradient, v)
    along = sum(jax.tree.leaves(parts))
    return jax.tree.map(lambda g: g * along, gradient)


# %% 3.3 wrong: the loss's gradient at J·v
# ∇loss(J·v) is no derivative along J·v: it takes the direction for a point. Use a jvp of the
# gradient, at z.
# see: 3.9
def gauss_newton_product(predict, loss, w, v):
    _, pushed = jax.jvp(predict, (w,), (v,))
    return jax.vjp(predict, w)[1](jax.grad(loss)(pushed))[0]


# %% 3.3 wrong: the loss's Hessian at 0
# The loss is curved differently at every output. Take its Hessian at z = predict(w).
# see: 3.9
def gauss_newton_product(predict, loss, w, v):
    z, pushed = jax.jvp(predict, (w,), (v,))
    _, curved = jax.jvp(jax.grad(loss), (jnp.zeros_like(z),), (pushed,))
    return jax.vjp(predict, w)[1](curved)[0]


# %% 3.3 wrong: forms the Jacobian
# The product is right, but the Jacobian has as many numbers as weights times outputs. One jvp and
# one vjp need none of them.
# see: 3.7
def gauss_newton_product(predict, loss, w, v):
    from jax.flatten_util import ravel_pytree

    flat, rebuild = ravel_pytree(w)
    along, _ = ravel_pytree(v)

    def outputs(flat):
        return predict(rebuild(flat)).ravel()

    z = predict(w)
    slopes = jax.jacrev(outputs)(flat)
    _, curved = jax.jvp(jax.grad(loss), (z,), ((slopes @ along).reshape(z.shape),))
    return rebuild(slopes.T @ curved.ravel())


# %% 3.3 wrong: forms the Hessian of the loss
# The loss's Hessian is smaller than J, but still the square of the number of outputs. Its product
# with a vector is one jvp of a gradient.
# see: 3.7
def gauss_newton_product(predict, loss, w, v):
    z, pushed = jax.jvp(predict, (w,), (v,))
    curved = jnp.tensordot(jax.hessian(loss)(z), pushed, z.ndim)
    return jax.vjp(predict, w)[1](curved)[0]


# %% 3.3 wrong: stays among the outputs
# The curvature along J·v has an entry for each output. Pull it back to the weights with a vjp.
# see: 3.9
def gauss_newton_product(predict, loss, w, v):
    z, pushed = jax.jvp(predict, (w,), (v,))
    return jax.jvp(jax.grad(loss), (z,), (pushed,))[1]


# %% 3.3 wrong: the tuple that a vjp returns
# A pull-back returns a tuple with one entry for each argument. Take the first.
# see: 3.2
def gauss_newton_product(predict, loss, w, v):
    z, pushed = jax.jvp(predict, (w,), (v,))
    _, curved = jax.jvp(jax.grad(loss), (z,), (pushed,))
    return jax.vjp(predict, w)[1](curved)


# %% 3.3 wrong: 2·JᵀJ
# The 2 belongs to a sum of squares without the half in front. What the loss contributes is its
# Hessian, whatever it is.
# see: 3.9
def gauss_newton_product(predict, loss, w, v):
    _, pushed = jax.jvp(predict, (w,), (v,))
    return jax.tree.map(lambda each: 2 * each, jax.vjp(predict, w)[1](pushed)[0])


# %% 3.3 wrong: one flat vector
# The product has the structure of `w`: a dict of arrays where `w` is one.
# see: 3.9
def gauss_newton_product(predict, loss, w, v):
    z, pushed = jax.jvp(predict, (w,), (v,))
    _, curved = jax.jvp(jax.grad(loss), (z,), (pushed,))
    back = jax.vjp(predict, w)[1](curved)[0]
    return jnp.concatenate([part.ravel() for part in jax.tree.leaves(back)])


# %% 3.4 right: a vmap over keys
def hessian_diagonal(f, x, key, probes):
    def one(key):
        signs = jax.random.rademacher(key, x.shape, x.dtype)
        return signs * hvp_forward_over_reverse(f, x, signs)

    return jnp.mean(jax.vmap(one)(jax.random.split(key, probes)), axis=0)


# %% 3.4 right: a scan that keeps a running sum
def hessian_diagonal(f, x, key, probes):
    def add(total, key):
        signs = 2.0 * jax.random.bernoulli(key, 0.5, x.shape).astype(x.dtype) - 1.0
        product = jax.grad(lambda y: jnp.vdot(jax.grad(f)(y), signs))(x)
        return total + signs * product, None

    total, _ = jax.lax.scan(add, jnp.zeros_like(x), jax.random.split(key, probes))
    return total / probes


# %% 3.4 right: linearized once, all signs at once
def hessian_diagonal(f, x, key, probes):
    signs = jnp.sign(jax.random.uniform(key, (probes, *x.shape), x.dtype, -1.0, 1.0) + 1e-9)
    _, product = jax.linearize(jax.grad(f), x)
    return (signs * jax.vmap(product)(signs)).mean(0)


# %% 3.4 right: a loop with fold_in
def hessian_diagonal(f, x, key, probes):
    def body(i, total):
        s = jax.random.choice(jax.random.fold_in(key, i), jnp.array([-1.0, 1.0]), x.shape)
        return total + s * jax.jvp(jax.grad(f), (x,), (s,))[1] / probes

    return jax.lax.fori_loop(0, probes, body, jnp.zeros(x.shape))


# %% 3.4 wrong: normal probes
# Normal probes are right on average, but z² is 1 on average only, so even a diagonal Hessian is
# estimated with an error. The square of a sign is always 1.
# see: 3.10
def hessian_diagonal(f, x, key, probes):
    z = jax.random.normal(key, (probes, *x.shape))
    _, product = jax.linearize(jax.grad(f), x)
    return (z * jax.vmap(product)(z)).mean(0)


# %% 3.4 wrong: uniform probes
# A uniform number between −1 and 1 has the mean square 1/3, and so has the estimate. Draw signs.
# see: 3.10
def hessian_diagonal(f, x, key, probes):
    z = jax.random.uniform(key, (probes, *x.shape), minval=-1.0, maxval=1.0)
    _, product = jax.linearize(jax.grad(f), x)
    return (z * jax.vmap(product)(z)).mean(0)


# %% 3.4 wrong: zeros and ones for signs
# `bernoulli` draws False and True. With 0 for −1 the products no longer cancel: map them to −1 and
# 1.
# see: 3.10
def hessian_diagonal(f, x, key, probes):
    z = jax.random.bernoulli(key, shape=(probes, *x.shape)).astype(x.dtype)
    _, product = jax.linearize(jax.grad(f), x)
    return (z * jax.vmap(product)(z)).mean(0)


# %% 3.4 wrong: the same probe again and again
# The key is used in each round as it came, so each round draws the same signs, and the mean of
# equal estimates is no better than one. Split the key.
# see: 3.10
def hessian_diagonal(f, x, key, probes):
    total = jnp.zeros_like(x)

    def add(_, total):
        s = jax.random.rademacher(key, x.shape, x.dtype)
        return total + s * hvp_forward_over_reverse(f, x, s)

    return jax.lax.fori_loop(0, probes, add, total) / probes


# %% 3.4 wrong: a key of its own
# The key that was handed in decides nothing: every call draws the same signs.
# see: 3.10
def hessian_diagonal(f, x, key, probes):
    s = jax.random.rademacher(jax.random.key(0), (probes, *x.shape), x.dtype)
    _, product = jax.linearize(jax.grad(f), x)
    return (s * jax.vmap(product)(s)).mean(0)


# %% 3.4 wrong: one sign for the whole point
# Every coordinate gets the same sign, which cancels, and the estimate is the sum of each row. Draw
# a sign for each coordinate.
# see: 3.10
def hessian_diagonal(f, x, key, probes):
    s = jax.random.rademacher(key, (probes,) + (1,) * x.ndim, x.dtype) * jnp.ones_like(x)
    _, product = jax.linearize(jax.grad(f), x)
    return (s * jax.vmap(product)(s)).mean(0)


# %% 3.4 wrong: H·s, not s·(H·s)
# The product H·s is 0 on average. Multiplied by s, element by element, its off-diagonal part is 0
# on average and its diagonal part is not.
# see: 3.10
def hessian_diagonal(f, x, key, probes):
    s = jax.random.rademacher(key, (probes, *x.shape), x.dtype)
    _, product = jax.linearize(jax.grad(f), x)
    return jax.vmap(product)(s).mean(0)


# %% 3.4 wrong: the trace
# sᵀ·H·s is one number, which estimates the trace. The diagonal is the elementwise product before it
# is summed.
# see: 3.10
def hessian_diagonal(f, x, key, probes):
    s = jax.random.rademacher(key, (probes, *x.shape), x.dtype)
    _, product = jax.linearize(jax.grad(f), x)
    return jnp.sum(s * jax.vmap(product)(s)) / probes


# %% 3.4 wrong: a sum where the mean is meant
# The estimate grows with the number of probes: divide by it.
# see: 3.10
def hessian_diagonal(f, x, key, probes):
    s = jax.random.rademacher(key, (probes, *x.shape), x.dtype)
    _, product = jax.linearize(jax.grad(f), x)
    return (s * jax.vmap(product)(s)).sum(0)


# %% 3.4 wrong: the diagonal of the whole Hessian
# That is exact, and costs n² numbers and n products. An estimate needs as many products as probes.
# see: 3.7
def hessian_diagonal(f, x, key, probes):
    n = x.size
    return jnp.diagonal(jax.hessian(f)(x).reshape(n, n)).reshape(x.shape)


# %% 3.4 wrong: a product for each coordinate
# One product with each basis vector gives the exact diagonal without n² numbers, but takes n
# products, however few probes were asked for.
# see: 3.10
def hessian_diagonal(f, x, key, probes):
    def entry(i):
        e = jnp.zeros(x.size).at[i].set(1.0).reshape(x.shape)
        return jnp.vdot(e, hvp_forward_over_reverse(f, x, e))

    return jax.lax.map(entry, jnp.arange(x.size)).reshape(x.shape)


# %% 3.4 wrong: the square of the gradient
# g² is the diagonal of the empirical Fisher matrix. It needs no second derivative, and is not one.
# see: 3.9
def hessian_diagonal(f, x, key, probes):
    return jax.grad(f)(x) ** 2


# %% 3.5 right: custom_vjp, the adjoint by its own fixed point
@partial(jax.custom_vjp, nondiff_argnums=(0,))
def fixed_point(g, a, x0):
    def going(state):
        step, old, new = state
        return (step < 1000) & (jnp.linalg.norm(new - old) > 3e-7 * jnp.linalg.norm(new))

    def again(state):
        step, _, new = state
        return step + 1, new, g(a, new)

    return jax.lax.while_loop(going, again, (0, x0 + 1.0, g(a, x0)))[2]


def _forward(g, a, x0):
    x = fixed_point(g, a, x0)
    return x, (a, x)


def _backward(g, saved, cotangent):
    a, x = saved
    _, pull = jax.vjp(g, a, x)
    adjoint = fixed_point(lambda c, u: c + pull(u)[1], cotangent, cotangent)
    return pull(adjoint)[0], jnp.zeros_like(x)


fixed_point.defvjp(_forward, _backward)


# %% 3.5 right: custom_root
def fixed_point(g, a, x0):
    def solve(f, start):
        def again(_, x):
            return x - f(x)

        return jax.lax.fori_loop(0, 150, again, start)

    def solve_linear(f, y):
        return jnp.linalg.solve(jax.jacfwd(f)(y), y)

    start = jax.lax.stop_gradient(x0)
    return jax.lax.custom_root(lambda x: x - g(a, x), start, solve, solve_linear)


# %% 3.5 right: nothing differentiated but one Newton step at the solution
def fixed_point(g, a, x0):
    frozen = jax.lax.stop_gradient(a)
    start = jax.lax.stop_gradient(x0)
    x = jax.lax.fori_loop(0, 200, lambda _, x: g(frozen, x), start)
    slopes = jax.jacobian(g, argnums=1)(frozen, x)
    return x + jnp.linalg.solve(jnp.eye(x.size) - slopes, g(a, x) - x)


# %% 3.5 right: the gradient's matrix solved, forward by Newton's method
@partial(jax.custom_vjp, nondiff_argnums=(0,))
def fixed_point(g, a, x0):
    def again(_, x):
        slopes = jax.jacfwd(lambda x: g(a, x))(x)
        return x + jnp.linalg.solve(jnp.eye(x.size) - slopes, g(a, x) - x)

    start = jax.lax.fori_loop(0, 30, lambda _, x: g(a, x), x0)
    return jax.lax.fori_loop(0, 6, again, start)


def _solved(g, a, x0):
    x = fixed_point(g, a, x0)
    return x, (a, x)


def _pulled(g, kept, ct):
    a, x = kept
    slopes = jax.jacrev(g, 1)(a, x)
    u = jnp.linalg.solve(jnp.eye(len(x)) - slopes.T, ct)
    return jax.vjp(lambda a: g(a, x), a)[1](u)[0], jnp.zeros(x.shape)


fixed_point.defvjp(_solved, _pulled)


# %% 3.5 wrong: differentiates every iteration
# `fori_loop` of a fixed length can be differentiated, but keeps every iterate for the way back. The
# equation alone tells the gradient.
# see: 3.11
def fixed_point(g, a, x0):
    return jax.lax.fori_loop(0, 120, lambda _, x: g(a, x), x0)


# %% 3.5 wrong: a while_loop and no rule
# Reverse mode can't go through a loop whose length it does not know. Give the solver a rule of its
# own.
# see: 3.5
def fixed_point(g, a, x0):
    def going(x):
        return jnp.max(jnp.abs(g(a, x) - x)) > 1e-6

    return jax.lax.while_loop(going, lambda x: g(a, x), x0)


# %% 3.5 wrong: one step at the solution
# Differentiating one more application of g gives ∂g/∂a alone. It forgets that x moves too: the
# factor (I − ∂g/∂x)⁻¹ is missing. In a rule that is u = v, where only the iteration for u begins.
# see: 3.11
def fixed_point(g, a, x0):
    frozen, start = jax.lax.stop_gradient(a), jax.lax.stop_gradient(x0)
    x = jax.lax.fori_loop(0, 200, lambda _, x: g(frozen, x), start)
    return g(a, x)


# %% 3.5 wrong: solves with ∂g/∂x, not with its transpose
# Cotangents travel backwards: u = v + (∂g/∂x)ᵀ·u. A pull-back is that transpose, a jvp is not.
# see: 3.11
@partial(jax.custom_vjp, nondiff_argnums=(0,))
def fixed_point(g, a, x0):
    return jax.lax.fori_loop(0, 200, lambda _, x: g(a, x), x0)


def _forward(g, a, x0):
    x = fixed_point(g, a, x0)
    return x, (a, x)


def _backward(g, saved, ct):
    a, x = saved

    def again(_, u):
        return ct + jax.jvp(lambda x: g(a, x), (x,), (u,))[1]

    u = jax.lax.fori_loop(0, 200, again, ct)
    return jax.vjp(lambda a: g(a, x), a)[1](u)[0], jnp.zeros_like(x)


fixed_point.defvjp(_forward, _backward)


# %% 3.5 wrong: I + ∂g/∂x
# From x = g(a, x) follows dx = ∂g/∂a·da + ∂g/∂x·dx: brought to the left, the last term changes its
# sign.
# see: 3.11
@partial(jax.custom_vjp, nondiff_argnums=(0,))
def fixed_point(g, a, x0):
    return jax.lax.fori_loop(0, 200, lambda _, x: g(a, x), x0)


def _forward(g, a, x0):
    x = fixed_point(g, a, x0)
    return x, (a, x)


def _backward(g, saved, ct):
    a, x = saved
    _, pull = jax.vjp(g, a, x)
    u = jax.lax.fori_loop(0, 200, lambda _, u: ct - pull(u)[1], ct)
    return pull(u)[0], jnp.zeros_like(x)


fixed_point.defvjp(_forward, _backward)


# %% 3.5 wrong: a few terms of the adjoint's series
# The adjoint is a fixed point too, and needs as many iterations as the solution: five are not
# enough where g contracts slowly.
# see: 3.11
@partial(jax.custom_vjp, nondiff_argnums=(0,))
def fixed_point(g, a, x0):
    return jax.lax.fori_loop(0, 200, lambda _, x: g(a, x), x0)


def _forward(g, a, x0):
    x = fixed_point(g, a, x0)
    return x, (a, x)


def _backward(g, saved, ct):
    a, x = saved
    _, pull = jax.vjp(g, a, x)
    u = jax.lax.fori_loop(0, 5, lambda _, u: ct + pull(u)[1], ct)
    return pull(u)[0], jnp.zeros_like(x)


fixed_point.defvjp(_forward, _backward)


# %% 3.5 wrong: the derivatives at the start
# The equation holds at the solution only. Keep the solution for the way back, not where the
# iteration began.
# see: 3.11
@partial(jax.custom_vjp, nondiff_argnums=(0,))
def fixed_point(g, a, x0):
    return jax.lax.fori_loop(0, 200, lambda _, x: g(a, x), x0)


def _forward(g, a, x0):
    return fixed_point(g, a, x0), (a, x0)


def _backward(g, saved, ct):
    a, x = saved
    _, pull = jax.vjp(g, a, x)
    u = jax.lax.fori_loop(0, 200, lambda _, u: ct + pull(u)[1], ct)
    return pull(u)[0], jnp.zeros_like(x)


fixed_point.defvjp(_forward, _backward)


# %% 3.5 wrong: hands the cotangent on to the start
# The solution does not depend on where the iteration began: the cotangent of `x0` is 0.
# see: 3.11
@partial(jax.custom_vjp, nondiff_argnums=(0,))
def fixed_point(g, a, x0):
    return jax.lax.fori_loop(0, 200, lambda _, x: g(a, x), x0)


def _forward(g, a, x0):
    x = fixed_point(g, a, x0)
    return x, (a, x)


def _backward(g, saved, ct):
    a, x = saved
    _, pull = jax.vjp(g, a, x)
    u = jax.lax.fori_loop(0, 200, lambda _, u: ct + pull(u)[1], ct)
    return pull(u)[0], ct


fixed_point.defvjp(_forward, _backward)


# %% 3.5 wrong: too few iterations
# Ten iterations are not enough where g contracts slowly. Go on until x no longer changes.
# see: 3.11
@partial(jax.custom_vjp, nondiff_argnums=(0,))
def fixed_point(g, a, x0):
    return jax.lax.fori_loop(0, 10, lambda _, x: g(a, x), x0)


def _forward(g, a, x0):
    x = fixed_point(g, a, x0)
    return x, (a, x)


def _backward(g, saved, ct):
    a, x = saved
    _, pull = jax.vjp(g, a, x)
    u = jax.lax.fori_loop(0, 200, lambda _, u: ct + pull(u)[1], ct)
    return pull(u)[0], jnp.zeros_like(x)


fixed_point.defvjp(_forward, _backward)


# %% 3.5 wrong: fifty iterations, whatever g is
# Where an error shrinks by 0.9 a step, fifty steps leave half a percent of it, of x and of the
# adjoint. Go on until nothing changes any more, with a cap of a thousand or so.
# see: 3.11
@partial(jax.custom_vjp, nondiff_argnums=(0,))
def fixed_point(g, a, x0):
    return jax.lax.fori_loop(0, 50, lambda _, x: g(a, x), x0)


def _forward(g, a, x0):
    x = fixed_point(g, a, x0)
    return x, (a, x)


def _backward(g, saved, ct):
    a, x = saved
    _, pull = jax.vjp(g, a, x)
    u = jax.lax.fori_loop(0, 50, lambda _, u: ct + pull(u)[1], ct)
    return pull(u)[0], jnp.zeros_like(x)


fixed_point.defvjp(_forward, _backward)


# %% 3.5 wrong: stops at a change of 1e-4
# What is still to come is not the last change, but the sum of all that would follow: ten times as
# much where an error shrinks by 0.9 a step. For 1e-4 in x, the change must be much smaller.
# see: 3.11
@partial(jax.custom_vjp, nondiff_argnums=(0,))
def fixed_point(g, a, x0):
    def going(state):
        return (state[0] < 1000) & (jnp.linalg.norm(state[2] - state[1]) > 1e-4)

    def again(state):
        return state[0] + 1, state[2], g(a, state[2])

    return jax.lax.while_loop(going, again, (0, x0, g(a, x0)))[2]


def _forward(g, a, x0):
    x = fixed_point(g, a, x0)
    return x, (a, x)


def _backward(g, saved, ct):
    a, x = saved
    _, pull = jax.vjp(g, a, x)
    u = jax.lax.fori_loop(0, 200, lambda _, u: ct + pull(u)[1], ct)
    return pull(u)[0], jnp.zeros_like(x)


fixed_point.defvjp(_forward, _backward)


# %% 3.5 wrong: stops the adjoint at a change of 1e-3
# The adjoint scales with the cotangent, which may be small: an absolute tolerance stops too early.
# And what is still to come is ten times the last change where an error shrinks by 0.9 a step.
# see: 3.11
@partial(jax.custom_vjp, nondiff_argnums=(0,))
def fixed_point(g, a, x0):
    return jax.lax.fori_loop(0, 200, lambda _, x: g(a, x), x0)


def _forward(g, a, x0):
    x = fixed_point(g, a, x0)
    return x, (a, x)


def _backward(g, saved, ct):
    a, x = saved
    _, pull = jax.vjp(g, a, x)

    def going(state):
        return (state[0] < 1000) & (jnp.linalg.norm(state[2] - state[1]) > 1e-3)

    def again(state):
        return state[0] + 1, state[2], ct + pull(state[2])[1]

    u = jax.lax.while_loop(going, again, (0, ct, ct + pull(ct)[1]))[2]
    return pull(u)[0], jnp.zeros_like(x)


fixed_point.defvjp(_forward, _backward)


# %% 3.5 wrong: 1e-6, whatever the size
# A cotangent of 1e-7 never changes by 1e-6, so that the way back stops before it begins. Compare
# the change with the size of what changes.
# see: 3.11
@partial(jax.custom_vjp, nondiff_argnums=(0,))
def fixed_point(g, a, x0):
    def going(state):
        return (state[0] < 1000) & jnp.any(jnp.abs(state[2] - state[1]) > 1e-6)

    def again(state):
        return state[0] + 1, state[2], g(a, state[2])

    return jax.lax.while_loop(going, again, (0, x0, g(a, x0)))[2]


def _forward(g, a, x0):
    x = fixed_point(g, a, x0)
    return x, (a, x)


def _backward(g, saved, ct):
    a, x = saved
    _, pull = jax.vjp(g, a, x)

    def going(state):
        return (state[0] < 1000) & jnp.any(jnp.abs(state[2] - state[1]) > 1e-6)

    def again(state):
        return state[0] + 1, state[2], ct + pull(state[2])[1]

    u = jax.lax.while_loop(going, again, (0, ct, ct + pull(ct)[1]))[2]
    return pull(u)[0], jnp.zeros_like(x)


fixed_point.defvjp(_forward, _backward)


# %% 3.5 wrong: stops as soon as one entry rests
# It goes on while *all* entries move. One that is right already, or has no slope, ends it for the
# others. Go on while any of them moves.
# see: 3.11
@partial(jax.custom_vjp, nondiff_argnums=(0,))
def fixed_point(g, a, x0):
    def going(state):
        return (state[0] < 1000) & jnp.all(jnp.abs(state[2] - state[1]) > 1e-6 * jnp.abs(state[2]))

    def again(state):
        return state[0] + 1, state[2], g(a, state[2])

    return jax.lax.while_loop(going, again, (0, x0, g(a, x0)))[2]


def _forward(g, a, x0):
    x = fixed_point(g, a, x0)
    return x, (a, x)


def _backward(g, saved, ct):
    a, x = saved
    _, pull = jax.vjp(g, a, x)

    def going(state):
        return (state[0] < 1000) & jnp.all(jnp.abs(state[2] - state[1]) > 1e-6 * jnp.abs(state[2]))

    def again(state):
        return state[0] + 1, state[2], ct + pull(state[2])[1]

    u = jax.lax.while_loop(going, again, (0, ct, ct + pull(ct)[1]))[2]
    return pull(u)[0], jnp.zeros_like(x)


fixed_point.defvjp(_forward, _backward)


# %% 3.5 wrong: stop_gradient on the solution
# That makes the solver differentiable by making its gradient 0.
# see: 3.11
def fixed_point(g, a, x0):
    x = jax.lax.fori_loop(0, 200, lambda _, x: g(a, x), x0)
    return jax.lax.stop_gradient(x)


# %% 3.5 wrong: unrolled, and recomputed on the way back
# `jax.checkpoint` keeps no iterates between the two passes, but makes them all again, and then
# holds them all. The equation needs none.
# see: 3.11
def fixed_point(g, a, x0):
    def solve(a):
        return jax.lax.fori_loop(0, 120, lambda _, x: g(a, x), jax.lax.stop_gradient(x0))

    return jax.checkpoint(solve)(a)
