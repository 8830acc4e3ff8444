"""What crosses between judge and learner: plain data survives, everything else is refused."""

import contextlib
import io
import json
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from autograder import wire

dtypes = st.sampled_from(sorted(wire.DTYPES)).map(np.dtype)
arrays = dtypes.flatmap(lambda d: hnp.arrays(d, hnp.array_shapes(min_dims=0, min_side=0)))
scalars = st.none() | st.booleans() | st.integers(1 - 2**64, 2**64 - 1) | st.floats() | st.text()
plain = st.recursive(
    scalars | arrays,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def exactly(data: bytes):
    stream = io.BytesIO(data)

    def read(n: int) -> bytes:
        got = stream.read(n)
        if len(got) < n:
            raise EOFError
        return got

    return read


def frame(header: object, body: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack(">I", len(text)) + text + body


def array_frame(dtype: object, shape: object, body: bytes = b"") -> bytes:
    tree = ["dict", {"x": ["array", 0]}]
    return frame({"tree": tree, "arrays": [{"dtype": dtype, "shape": shape}]}, body)


@given(st.dictionaries(st.text(), plain))
def test_what_goes_in_comes_out(message):
    back = wire.decode(exactly(wire.encode(message)))
    assert_same(back, message)


def assert_same(a, b):
    if isinstance(b, np.ndarray):
        assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    elif isinstance(b, dict):
        assert list(a) == list(b)
        for key in b:
            assert_same(a[key], b[key])
    elif isinstance(b, list):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_same(x, y)
    else:
        assert type(a) is type(b) and (a == b or (a != a and b != b))


@given(st.binary(max_size=400))
def test_arbitrary_bytes_are_a_wire_error_or_the_end_of_the_stream(data):
    with contextlib.suppress(wire.WireError, EOFError):
        assert isinstance(wire.decode(exactly(data)), dict)


HOSTILE = {
    "a header of four gigabytes": b"\xff\xff\xff\xff" + b"x" * 100,
    "an empty header": struct.pack(">I", 0),
    "a header that is no JSON": frame(b"not json"),
    "JSON that nests too deeply to parse": frame(b"[" * 60_000),
    "a tree that nests too deeply": frame(
        {"tree": eval("['list', " * 50 + "]" * 50), "arrays": []}
    ),
    "a list where a dict belongs": frame([1, 2]),
    "a number with a million digits": frame(b'{"tree": ' + b"9" * 200_000 + b', "arrays": []}'),
    "an object array": array_frame("|O", [4], b"x" * 32),
    "a string dtype": array_frame("<U4", [1], b"x" * 16),
    "a dtype that is no string": array_frame(["<f4"], [1], b"x" * 4),
    "a negative size": array_frame("<f4", [-1]),
    "sizes that multiply to a terabyte": array_frame("<f8", [1 << 20, 1 << 20]),
    "zero rows of endless columns": array_frame("<f8", [0, 1 << 62]),
    "no row of more columns than NumPy counts": array_frame("<c16", [*[1 << 26] * 7, 0]),
    "one array in two places": frame(
        {
            "tree": ["dict", {"x": ["array", 0], "y": ["array", 0]}],
            "arrays": [{"dtype": "|u1", "shape": [4]}],
        },
        b"four",
    ),
    "an integer of more than 64 bits": frame({"tree": ["dict", {"x": 1 << 64}], "arrays": []}),
    "a float as a size": array_frame("<f4", [1.0], b"x" * 4),
    "true as a size": array_frame("<f4", [True], b"x" * 4),
    "an array that was never sent": frame({"tree": ["dict", {"x": ["array", 3]}], "arrays": []}),
    "a message that is no dict": frame({"tree": ["list", 1], "arrays": []}),
    "arrays whose sum would be gigabytes": frame(
        {
            "tree": ["dict", {"x": ["array", 0], "y": ["array", 1]}],
            "arrays": [{"dtype": "|u1", "shape": shape} for shape in ([60_000, 1], [1, 60_000])],
        },
        bytes(120_000),
    ),
    "too many arrays": frame(
        {"tree": ["dict", {}], "arrays": [{"dtype": "<f4", "shape": []}] * 300}, b"x" * 1200
    ),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_frames_are_refused(data):
    with pytest.raises(wire.WireError):
        wire.decode(exactly(data))


def test_a_result_too_large_for_the_wire_is_refused_where_it_is_made():
    with pytest.raises(wire.WireError, match="too large"):
        wire.encode({"x": np.zeros(wire.MAX_BYTES // 8 + 1)})


def test_many_arrays_of_ordinary_shapes_pass():
    arrays = [np.zeros(shape) for shape in ((5000,), (1, 5000), (5000, 1), (3, 5000), (), (0, 7))]
    assert len(wire.decode(exactly(wire.encode({"x": arrays})))["x"]) == len(arrays)


def test_an_integer_too_large_for_the_wire_is_refused_where_it_is_made():
    with pytest.raises(wire.WireError, match="bits"):
        wire.encode({"x": 10**400})


def test_a_text_that_no_file_can_hold_is_mended():
    assert wire.decode(exactly(frame({"tree": ["dict", {"x": "a\ud800"}], "arrays": []}))) == {
        "x": "a?"
    }
