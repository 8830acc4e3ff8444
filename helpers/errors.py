"""Shows an error that must happen as one stable line, and fails where it does not happen.

It is for lessons about errors; to test one without printing, use `pytest.raises`.
"""

import re
from collections.abc import Callable

_UNSTABLE = (
    (re.compile(r"0x[0-9a-fA-F]{4,}"), "0x…"),
    (re.compile(r"\bid=\d+"), "id=…"),
    (re.compile(r"\S*ipykernel_\d+/\d+\.py"), "this cell"),
    (re.compile(r"\b\d+\.\d+ sec\b"), "… sec"),
)


def stable(text: str) -> str:
    """The text without what differs from run to run: addresses, ids, cell files and durations."""
    for pattern, replacement in _UNSTABLE:
        text = pattern.sub(replacement, text)
    return text


def show_error(
    fn: Callable[..., object],
    *args: object,
    expect: type[Exception] | tuple[type[Exception], ...] = Exception,
    contains: str = "",
    lines: int = 1,
    **kwargs: object,
) -> Exception:
    """Runs `fn(*args, **kwargs)`, which must raise, and prints the start of the error.

    Args:
        expect: the class, or classes, that the error must be an instance of.
        contains: text that its message must contain.
        lines: how many lines of the message to print, blank ones not counted.

    Returns:
        The exception, without its traceback, which would keep every local array alive.

    Raises:
        AssertionError: nothing was raised, or another class, or another message.
    """
    try:
        result = fn(*args, **kwargs)
    except Exception as error:
        caught = error.with_traceback(None)
    else:
        raise AssertionError(
            f"expected {_names(expect)}, but nothing was raised: got {result!r:.80}"
        )
    name, message = type(caught).__name__, str(caught)
    if not isinstance(caught, expect):
        raise AssertionError(f"expected {_names(expect)}, got {name}: {message}") from caught
    if contains not in message:
        raise AssertionError(
            f"expected {contains!r} in the message, got {name}: {message}"
        ) from caught
    shown = [line for line in message.splitlines() if line.strip()][:lines]
    print(stable("\n".join([f"{name}: {shown[0]}", *shown[1:]] if shown else [name])))
    return caught


def _names(expect: type[Exception] | tuple[type[Exception], ...]) -> str:
    classes = expect if isinstance(expect, tuple) else (expect,)
    return " or ".join(cls.__name__ for cls in classes)
