"""Hessian-vector products, three ways, none of which forms the Hessian.

All cost a small multiple of one gradient; which is best depends on the function, so measure.
"""

from collections.abc import Callable

import jax
from jax import Array

from helpers.trees import Tree

ScalarFunction = Callable[[Tree], Array]


def hvp_forward_over_reverse(f: ScalarFunction, x: Tree, v: Tree) -> Tree:
    """H·v as the derivative of the gradient along v: one jvp through one grad.

    Args:
        f: scalar function of x, twice differentiable.
        x: any pytree. v: a pytree of the same structure, shapes and dtypes.

    Returns:
        A pytree like x. It needs no storage that grows with the work done inside the gradient.
    """
    return jax.jvp(jax.grad(f), (x,), (v,))[1]


def hvp_reverse_over_forward(f: ScalarFunction, x: Tree, v: Tree) -> Tree:
    """H·v as the gradient of the directional derivative: ∇ₓ(∇f(x)·v), by one grad of one jvp.

    Arguments and result as in `hvp_forward_over_reverse`.
    """
    return jax.grad(lambda y: jax.jvp(f, (y,), (v,))[1])(x)


def hvp_reverse_over_reverse(f: ScalarFunction, x: Tree, v: Tree) -> Tree:
    """vᵀ·H by pulling v back through the gradient: one vjp of one grad.

    It equals H·v because a Hessian is symmetric; for the Jacobian of a function that is no
    gradient, the same code gives vᵀJ. Arguments and result as in `hvp_forward_over_reverse`.
    """
    return jax.vjp(jax.grad(f), x)[1](v)[0]
