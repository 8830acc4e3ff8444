"""What crosses between the judge and a learner's process: frames of plain data, and nothing else.

A frame is a big-endian u32, that many bytes of JSON, then the raw bytes of the arrays that the JSON
announces. No pickle, no names to look up, no object arrays. The reader allocates what has arrived,
never what was announced, and refuses whatever is larger than its limits. What it returns is no
larger than what arrived: no array stands in two places, and no integer has more than 64 bits.

In the JSON a list is ["list", …], a dict ["dict", {…}], an array ["array", i]; the rest is itself.
"""

import json
import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations, zip_longest
from typing import Any

import numpy as np

DTYPES = frozenset(
    ["|b1", "|i1", "|u1"]
    + [f"<{kind}{size}" for kind in "iu" for size in (2, 4, 8)]
    + ["<f2", "<f4", "<f8", "<c8", "<c16"]
)
MAX_HEADER = 1 << 18
MAX_ARRAYS = 256
MAX_BYTES = 1 << 26
MAX_TOGETHER = 1 << 26
"""Elements of what any two arrays of a frame broadcast to: a judge may add them unawares."""
MAX_DEPTH = 16
MAX_INTEGER = 1 << 64


class WireError(ValueError):
    """The bytes are no frame, or one that is larger than allowed."""


def encode(message: Mapping[str, Any]) -> bytes:
    """The frame of a message of plain data (`helpers.exercise.plain`).

    Raises WireError where it would be larger than `decode` allows.
    """
    arrays: list[np.ndarray] = []
    tree = _flatten(message, arrays)
    specs = [{"dtype": _little(a).dtype.str, "shape": list(a.shape)} for a in arrays]
    header = json.dumps({"tree": tree, "arrays": specs}).encode()
    size = sum(a.nbytes for a in arrays)
    if len(header) > MAX_HEADER or size > MAX_BYTES or len(arrays) > MAX_ARRAYS:
        raise WireError(f"the result is too large: {len(arrays)} arrays of {size} bytes")
    if not _small_together(a.shape for a in arrays):
        raise WireError("the result's arrays broadcast to one that is too large")
    body = b"".join(_little(a).tobytes() for a in arrays)
    return struct.pack(">I", len(header)) + header + body


def decode(read: Callable[[int], bytes]) -> dict[str, Any]:
    """Reads one frame through `read(n)`, which returns exactly n bytes or raises.

    Raises WireError for anything that is not a frame within the limits.
    """
    (size,) = struct.unpack(">I", read(4))
    if not 0 < size <= MAX_HEADER:
        raise WireError(f"a header of {size} bytes")
    try:
        header = json.loads(read(size))
        tree, specs = header["tree"], header["arrays"]
        shapes = [_checked(spec["dtype"], spec["shape"]) for spec in specs[: MAX_ARRAYS + 1]]
    except (ValueError, RecursionError, TypeError, KeyError) as error:
        raise WireError(f"the header is not as agreed ({type(error).__name__})") from None
    if len(shapes) > MAX_ARRAYS or sum(size for _, _, size in shapes) > MAX_BYTES:
        raise WireError("the arrays are too large")
    if not _small_together(shape for _, shape, _ in shapes):
        raise WireError("the arrays broadcast to one that is too large")
    arrays = [np.frombuffer(read(size), dtype).reshape(shape) for dtype, shape, size in shapes]
    message = _unflatten(tree, dict(enumerate(arrays)), MAX_DEPTH)
    if not isinstance(message, dict):
        raise WireError("the message is not a dict")
    return message


def _flatten(value: Any, arrays: list[np.ndarray]) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        arrays.append(np.asarray(value))
        return ["array", len(arrays) - 1]
    if isinstance(value, Mapping):
        return ["dict", {str(key): _flatten(item, arrays) for key, item in value.items()}]
    if isinstance(value, list | tuple):
        return ["list", *(_flatten(item, arrays) for item in value)]
    if isinstance(value, int) and abs(value) >= MAX_INTEGER:
        raise WireError(f"an integer of {value.bit_length()} bits")
    return value


def _unflatten(tree: Any, arrays: dict[int, np.ndarray], depth: int) -> Any:
    """The message of a tree. Takes each array out when it is met: a second time it is not there."""
    if tree is None or isinstance(tree, float):
        return tree
    if isinstance(tree, int) and abs(tree) < MAX_INTEGER:
        return tree
    if isinstance(tree, str):
        return _text(tree)
    if depth and isinstance(tree, list) and tree:
        kind, *rest = tree
        if kind == "list":
            return [_unflatten(item, arrays, depth - 1) for item in rest]
        if kind == "dict" and len(rest) == 1 and isinstance(rest[0], dict):
            items = rest[0].items()
            return {_text(key): _unflatten(item, arrays, depth - 1) for key, item in items}
        if kind == "array" and len(rest) == 1 and type(rest[0]) is int and rest[0] in arrays:
            return arrays.pop(rest[0])
    raise WireError("the message is not as agreed")


def _text(text: str) -> str:
    """The text without lone surrogates, which no file could be written with."""
    return text.encode("utf-8", errors="replace").decode()


def _checked(dtype: Any, shape: Any) -> tuple[np.dtype, tuple[int, ...], int]:
    """Dtype, shape and bytes of an announced array, all within the limits."""
    if dtype not in DTYPES:
        raise WireError(f"dtype {str(dtype)[:20]!r}")
    if not isinstance(shape, list) or len(shape) > 8:
        raise WireError("shape")
    if any(type(n) is not int or not 0 <= n <= MAX_BYTES for n in shape):
        raise WireError(f"shape {str(shape)[:60]}")
    kind = np.dtype(dtype)
    if math.prod(n or 1 for n in shape) * kind.itemsize > MAX_BYTES:  # NumPy asks, even if empty
        raise WireError(f"shape {str(shape)[:60]}")
    return kind, tuple(shape), math.prod(shape) * kind.itemsize


def _small_together(shapes: Iterable[tuple[int, ...]]) -> bool:
    return all(_together(a, b) <= MAX_TOGETHER for a, b in combinations(set(shapes), 2))


def _together(a: Sequence[int], b: Sequence[int]) -> int:
    """Elements of what arrays of two shapes broadcast to; 0 where they don't."""
    pairs = list(zip_longest(reversed(a), reversed(b), fillvalue=1))
    if any(m != n and 1 not in (m, n) for m, n in pairs):
        return 0
    return math.prod(m if n == 1 else n for m, n in pairs)


def _little(array: np.ndarray) -> np.ndarray:
    return array.astype(array.dtype.newbyteorder("<"), copy=False)
