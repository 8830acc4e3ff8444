"""What a judge may expect of an observation: each function is one row of the verdict.

They compare plain data with NumPy float64, name what is wrong before they compare numbers (no
value, another shape, not a number), and never raise for what an answer returned.
"""

from typing import Any

import numpy as np

from helpers.exercise import Row


def close(
    key: str, seen: Any, want: Any, *, rtol: float = 1e-5, atol: float = 0.0, **why: str
) -> Row:
    """`|seen − want| ≤ atol + rtol·|want|` in every element, NaN where and only where `want` is.

    seen: what the probe returned. want: array-like of the expected shape, compared in float64.
    why: `hint=` and `see=`, as in every function here.
    """
    want = np.asarray(want, np.float64)
    problem = _not_numbers(seen, want.shape)
    if problem:
        return Row(key, False, seen=problem, expected=short(want), **why)
    got = np.asarray(seen).astype(np.float64)
    with np.errstate(invalid="ignore"):  # inf − inf
        error = np.abs(got - want)
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    good = same | (np.isfinite(want) & (error <= atol + rtol * np.abs(want)))
    if np.all(good):
        return Row(key, True, seen=short(got), expected=short(want))
    return Row(key, False, **_worst(got, want, error, good), **why)


def equal(key: str, seen: Any, want: Any, *, unit: str = "", **why: str) -> Row:
    """The same value exactly: a number, string, boolean, array (shape included), or a list of them.

    unit: what is counted, for the message ("compilations").
    """
    if isinstance(want, np.ndarray):
        problem = _not_numbers(seen, want.shape)
        if problem:
            return Row(key, False, seen=problem, expected=short(want), **why)
        got = np.asarray(seen)
        same = (got == want) | ((got != got) & (want != want))
        if not np.all(same):
            return Row(key, False, **_worst(got, want, 1.0 * ~same, same), **why)
        passed = True
    else:
        passed = _same_scalar(seen, want)
    return Row(key, passed, _with(seen, unit), _with(want, unit), **why)


def at_most(key: str, seen: Any, limit: float, *, unit: str = "", **why: str) -> Row:
    """A number no larger than `limit`; NaN and anything that is no number fail."""
    passed = _is_number(seen) and bool(seen <= limit)
    return Row(key, passed, _with(seen, unit), f"at most {_with(limit, unit)}", **why)


def at_least(key: str, seen: Any, limit: float, *, unit: str = "", **why: str) -> Row:
    """A number no smaller than `limit`; NaN and anything that is no number fail."""
    passed = _is_number(seen) and bool(seen >= limit)
    return Row(key, passed, _with(seen, unit), f"at least {_with(limit, unit)}", **why)


def finite(key: str, seen: Any, **why: str) -> Row:
    """Every element is a finite number."""
    array = np.asarray(seen) if hasattr(seen, "dtype") or _is_number(seen) else None
    if array is None or array.dtype.kind not in "biuf":
        return Row(key, False, seen=describe(seen), expected="finite numbers", **why)
    bad = int(np.sum(~np.isfinite(array)))
    seen_text = f"{bad} of {array.size} not finite: {short(array)}" if bad else short(array)
    return Row(key, bad == 0, seen_text, "finite numbers", **why)


def raises(key: str, seen: Any, error: str | tuple[str, ...], **why: str) -> Row:
    """`seen` is the class name that `helpers.exercise.error_name` returned in the probe."""
    wanted = (error,) if isinstance(error, str) else error
    text = str(seen) if seen else "no error was raised"
    return Row(key, seen in wanted, text[:80], " or ".join(wanted), **why)


def true(key: str, passed: Any, *, seen: str = "", expected: str = "", **why: str) -> Row:
    """Whatever the judge worked out itself; say in words what was seen and expected."""
    return Row(key, bool(passed), seen, expected, **why)


def total(*counts: Any) -> int:
    """The sum of counts that a probe made, one by one or in lists. TypeError for what is none."""
    each = [n for count in counts for n in (count if isinstance(count, list) else [count])]
    if any(type(n) is not int for n in each):
        raise TypeError("not a count")
    return sum(each)


# --- words for what was seen ---------------------------------------------------------------------


def short(value: Any, items: int = 6) -> str:
    """A number or array in at most `items` elements of six digits, the same on every machine."""
    array = np.asarray(value)
    if array.ndim == 0:
        return _number(array[()])
    flat = [_number(x) for x in array.ravel()[:items]]
    dots = ", …" if array.size > items else ""
    shape = f" of shape {array.shape}" if array.ndim > 1 or dots else ""
    return f"[{', '.join(flat)}{dots}]{shape}"


def describe(value: Any) -> str:
    """A value in a few words: "None: did the function return?", "an array of shape (4, 3)"."""
    if value is None:
        return "None: did the function return?"
    if isinstance(value, str):
        return repr(value[:80])
    if isinstance(value, np.ndarray) and value.ndim:
        return f"an array of shape {value.shape}"
    if isinstance(value, list | dict):
        return f"a {type(value).__name__} of {len(value)}"
    return _number(value)


def _not_numbers(seen: Any, shape: tuple[int, ...]) -> str:
    """What keeps `seen` from being compared with numbers of this shape; "" if nothing does."""
    if isinstance(seen, list):
        try:
            seen = np.asarray(seen, np.float64)
        except (TypeError, ValueError):
            return describe(seen)
    if not hasattr(seen, "dtype") and not _is_number(seen):
        return describe(seen)
    array = np.asarray(seen)
    if array.dtype.kind not in "biuf":
        return f"numbers of type {array.dtype}"
    if array.shape != shape:
        return f"shape {array.shape}, where {shape} is expected"
    return ""


def _worst(
    got: np.ndarray, want: np.ndarray, error: np.ndarray, good: np.ndarray
) -> dict[str, str]:
    """The element that is furthest off, as the `seen` and `expected` of a row."""
    ranked = np.where(good, -1.0, np.where(np.isnan(error), np.inf, error))
    index = np.unravel_index(int(np.argmax(ranked)), ranked.shape)
    place = f" at index {tuple(int(i) for i in index)}" if ranked.ndim else ""
    bad = int(np.sum(~good))
    many = f" ({bad} of {good.size} elements are off)" if good.size > 1 else ""
    return {"seen": f"{_number(got[index])}{place}{many}", "expected": _number(want[index])}


def _is_number(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim == 0 and value.dtype.kind in "biuf"
    return isinstance(value, bool | int | float)


def _same_scalar(seen: Any, want: Any) -> bool:
    if isinstance(want, bool | int | float):
        return _is_number(seen) and bool(seen == want)
    if isinstance(want, list):
        same_length = isinstance(seen, list) and len(seen) == len(want)
        return same_length and all(_same_scalar(a, b) for a, b in zip(seen, want, strict=True))
    return type(seen) is type(want) and seen == want


ONE = {"leaves": "leaf"}
"""Words whose singular is not the plural without its s."""


def _number(value: Any) -> str:
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, int | np.integer):
        return str(int(value))[:40]
    if isinstance(value, float | np.floating):
        return f"{float(value) + 0.0:.6g}"  # never -0
    return str(value)[:80]


def _with(value: Any, unit: str) -> str:
    plain = isinstance(value, np.ndarray) or _is_number(value)
    text = short(value) if plain else describe(value)
    if text == "1":
        first, *rest = unit.split(" ", 1)
        unit = " ".join([ONE.get(first, first.removesuffix("s")), *rest])
    return f"{text} {unit}".rstrip()
