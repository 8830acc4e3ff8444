"""Compares results with a float64 reference and says which element is furthest off.

NumPy only: JAX is asked about containers of its own when somebody else has already imported it.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]


def to64(tree: Any) -> Any:
    """The same nest with every array in NumPy float64, converted exactly.

    Args:
        tree: an array, a number, or a pytree of these: dicts, lists, tuples, NamedTuples, and what
            is registered with JAX.

    Returns:
        The same structure of NumPy arrays: floats of any width (bfloat16 too) are float64,
        integers int64 (uint64 stays), bools bool, complex numbers complex128. None stays None.

    Raises:
        TypeError: for a leaf that is no number, naming its path.
    """
    return _map_leaves(lambda path, leaf: _widen(_numeric(leaf, path)), tree, "")


def ulps(got: Any, want: Any) -> Float64:
    """How far `got` is from `want`, in units in the last place of got's own dtype.

    One ULP is the gap between the floating-point number nearest to `want` and the next one
    (`np.spacing`): 1.2e-7 near 1 in float32. A correctly rounded result is off by at most 0.5.
    Around zero the unit is the smallest denormal number, so a tiny error counts as many.

    Args:
        got: array or number of a floating dtype (bfloat16 too); a Python float is float64.
        want: the reference, of the same shape; rounded to got's dtype for the unit only.

    Returns:
        float64, same shape, never negative; 0 where both are NaN or the same infinity, also where
        `want` is too large for got's dtype and `got` is infinite; inf where only one is finite.

    Raises:
        TypeError: when `got` is not of a real floating dtype.
        AssertionError: when the shapes differ.
    """
    seen = _numeric(got)
    exact = _widen(_numeric(want))
    if not _is_float(seen.dtype):
        raise TypeError(f"ULPs need a floating dtype, got {seen.dtype}")
    _check_shape(seen, exact, "")
    with np.errstate(all="ignore"):
        nearest = exact.astype(seen.dtype)
        unit = _widen(np.abs(np.spacing(nearest)))
        wide = _widen(seen)
        error = np.abs(wide - exact) / unit
        same = _same(wide, exact) | _same(wide, _widen(nearest)) & np.isinf(wide)
        return np.where(same, 0.0, np.where(np.isnan(error), np.inf, error))


def assert_close(got: Any, want: Any, *, rtol: float, atol: float = 0.0, label: str = "") -> None:
    """Asserts `|got − want| ≤ atol + rtol·|want|` for every element, computed in float64.

    Shapes must be equal: nothing is broadcast. NaN matches NaN, and an infinity the same infinity.
    Dtypes are not compared.

    Args:
        got, want: arrays, numbers, or pytrees of these with the same paths. A list against an
            array counts as an array.
        rtol, atol: relative and absolute tolerance.
        label: opens the message.

    Raises:
        AssertionError: with the worst element, its index, both values, the error (absolute,
            relative, in ULPs) and how many elements fail; or with the two shapes or structures.
        TypeError: for something that is no number, with its path.
    """

    def accept(seen: Array, exact: Array) -> Array:
        error = _error(seen, exact)
        return np.isfinite(error) & (error <= atol + rtol * np.abs(_arithmetic(exact)))

    _compare(got, want, accept, f"differ by more than rtol={rtol:g}, atol={atol:g}", label)


def assert_ulps(got: Any, want: Any, max_ulps: float, label: str = "") -> None:
    """Asserts that every element is within `max_ulps` units in the last place (see `ulps`).

    The arguments, and what is raised, are as in `assert_close`; TypeError also as in `ulps`.
    """

    def accept(seen: Array, exact: Array) -> Array:
        return ulps(seen, exact) <= max_ulps

    _compare(got, want, accept, f"differ by more than {max_ulps:g} ULP", label)


def assert_equal(got: Any, want: Any, label: str = "") -> None:
    """Asserts that values, shapes and structure are the same exactly; NaN equals NaN, −0 equals 0.

    Dtypes are not compared: the integer 3 equals 3.0. Strings may be compared too. What is raised
    is as in `assert_close`.
    """
    _compare(got, want, lambda seen, exact: np.zeros(seen.shape, bool), "differ", label)


def assert_finite(tree: Any, label: str = "") -> None:
    """Asserts that no number in the pytree is NaN or infinite.

    Raises:
        AssertionError: with the path and index of the first one, and how many there are.
        TypeError: for something that is no number, with its path.
    """

    def check(path: str, leaf: Any) -> None:
        array = _widen(_numeric(leaf, path))
        bad = ~np.isfinite(array)
        if np.any(bad):
            index = tuple(np.argwhere(bad)[0])
            raise AssertionError(
                f"{_where(label, path)}{np.sum(bad)} of {bad.size} elements are not finite; "
                f"the first{_at(index)} is {array[index]}"
            )

    _map_leaves(check, tree, "")


# --- comparing -----------------------------------------------------------------------------------


def _compare(
    got: Any, want: Any, accept: Callable[[Array, Array], Array], complaint: str, label: str
) -> None:
    """Raises AssertionError for the first pair of leaves with an element that is not accepted."""
    for path, left, right in _pairs(got, want, label):
        where = _where(label, path)
        if isinstance(left, str) or isinstance(right, str):
            if left != right:
                raise AssertionError(f"{where}expected {right!r}, got {left!r}")
            continue
        seen, exact = _numeric(left, path), _numeric(right, path)
        _check_shape(seen, exact, where)
        with np.errstate(all="ignore"):
            good = _same(_widen(seen), _widen(exact)) | accept(seen, exact)
        if not np.all(good):
            raise AssertionError(f"{where}{_worst(seen, exact, good, complaint)}")


def _worst(seen: Array, exact: Array, good: Array, complaint: str) -> str:
    """Describes the element with the largest error among those that are not good."""
    with np.errstate(all="ignore"):
        error = _error(seen, exact)
        ranked = np.where(good, -1.0, np.where(np.isnan(error), np.inf, error))
        index = tuple(np.argwhere(ranked == np.max(ranked))[0])
        relative = error[index] / np.abs(_arithmetic(exact)[index])
    sizes = f"absolute error {error[index]:.3g}, relative {relative:.3g}"
    if _is_float(seen.dtype) and exact.dtype.kind != "c":
        sizes += f", {ulps(seen[index], exact[index]):.4g} ULP of {seen.dtype.name}"
    return (
        f"{np.sum(~good)} of {good.size} elements {complaint}; the worst{_at(index)}: "
        f"expected {_show(exact[index])}, got {_show(seen[index])} ({sizes})"
    )


def _check_shape(got: Array, want: Array, where: str) -> None:
    if got.shape != want.shape:
        raise AssertionError(f"{where}expected shape {want.shape}, got {got.shape}")


def _same(got: Array, want: Array) -> Array:
    """Where the two are equal, or both NaN."""
    return (got == want) | (np.isnan(got) & np.isnan(want))


def _error(got: Array, want: Array) -> Array:
    """|got − want| in float64; NaN where the difference is not defined."""
    return np.abs(_arithmetic(got) - _arithmetic(want))


# --- numbers -------------------------------------------------------------------------------------


def _numeric(leaf: Any, path: str = "") -> Array:
    """The leaf as an array of numbers in its own dtype; TypeError, with the path, if it is none."""
    where = f" at {path}" if path else ""
    if leaf is None:
        raise TypeError(f"expected numbers{where}, got None: did the function return?")
    try:
        array = np.asarray(leaf)
    except (TypeError, ValueError) as error:
        raise TypeError(f"expected numbers{where}, got {type(leaf).__name__}: {error}") from error
    if array.dtype.kind not in "biufc" and not _is_extended(array.dtype):
        raise TypeError(f"expected numbers{where}, got {type(leaf).__name__} ({array.dtype})")
    return array


def _widen(array: Array) -> Array:
    """float64, int64, bool or complex128: the widest of its kind; uint64 stays."""
    if _is_float(array.dtype):
        return array.astype(np.float64)
    if array.dtype.kind == "c":
        return array.astype(np.complex128)
    if array.dtype in (np.bool_, np.uint64):
        return array
    return array.astype(np.int64)


def _arithmetic(array: Array) -> Array:
    """complex128 for complex numbers, float64 for all others, which can then be subtracted."""
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _is_float(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "f" or (_is_extended(dtype) and "float" in dtype.name)


def _is_extended(dtype: np.dtype[Any]) -> bool:
    """Whether it is a number of ml_dtypes (bfloat16, float8_…, int4), which NumPy calls void."""
    return dtype.kind == "V" and dtype.fields is None and "void" not in dtype.name


# --- nests ---------------------------------------------------------------------------------------


def _children(node: Any) -> dict[str, Any] | None:
    """The entries of a container by their piece of path, None for a leaf."""
    if node is None:
        return {}
    if isinstance(node, Mapping):
        return {f"[{key!r}]": child for key, child in node.items()}
    if isinstance(node, tuple) and hasattr(node, "_fields"):
        return {f".{field}": child for field, child in zip(node._fields, node, strict=True)}
    if isinstance(node, list | tuple):
        return {f"[{i}]": child for i, child in enumerate(node)}
    jax = sys.modules.get("jax")
    if jax is None or hasattr(node, "__array__") or isinstance(node, str | int | float | complex):
        return None
    entries, _ = jax.tree_util.tree_flatten_with_path(node, is_leaf=lambda x: x is not node)
    if len(entries) == 1 and entries[0][1] is node:
        return None
    return {jax.tree_util.keystr(path): child for path, child in entries}


def _map_leaves(fn: Callable[[str, Any], Any], node: Any, path: str) -> Any:
    """Applies `fn(path, leaf)` to every leaf; the containers stay what they are."""
    children = _children(node)
    if children is None:
        return fn(path, node)
    new = [_map_leaves(fn, child, path + key) for key, child in children.items()]
    if node is None:
        return None
    if type(node) is dict:
        return dict(zip(node, new, strict=True))
    if type(node) in (list, tuple):
        return type(node)(new)
    if isinstance(node, tuple):
        return type(node)(*new)
    jax = sys.modules["jax"]
    structure = jax.tree.structure(node, is_leaf=lambda x: x is not node)
    return jax.tree.unflatten(structure, new)


def _pairs(got: Any, want: Any, label: str, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The leaves of both nests side by side, with their path; AssertionError where they differ."""
    left, right = _children(got), _children(want)
    if left is None or right is None:
        yield path, got, want
        return
    if left.keys() != right.keys():
        entries = (
            f"expected the entries {', '.join(right) or 'none'}, got {', '.join(left) or 'none'}"
        )
        raise AssertionError(f"{_where(label, path)}{entries}")
    for key, child in right.items():
        yield from _pairs(left[key], child, label, path + key)


# --- words ---------------------------------------------------------------------------------------


def _where(label: str, path: str) -> str:
    return f"{label}{path}: " if label or path else ""


def _at(index: tuple[Any, ...]) -> str:
    """ " at (1, 2)", or nothing for a single number."""
    return f" at {tuple(int(i) for i in index)}" if index else ""


def _show(value: Any) -> str:
    return f"{value:.9g}" if isinstance(value, np.inexact) else str(value)
