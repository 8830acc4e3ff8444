"""Where arrays live: whose buffer is whose, what donation took, and which of its rules was broken.

It looks and never copies, so that looking does not keep a donation back. An address is for
comparing only: it differs from run to run, and a freed one is given out again.
"""

from collections.abc import Callable

import jax

from helpers.logs import captured_stderr
from helpers.trees import Tree


def addresses(tree: Tree) -> list[int]:
    """Where the buffer of each leaf starts, in the order of the leaves.

    tree: any pytree of JAX arrays, each on one device.

    Raises:
        AttributeError: for a leaf that is no JAX array.
        RuntimeError: for one whose buffer is gone.
    """
    return [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(tree)]


def shared(tree: Tree) -> list[list[str]]:
    """The paths of leaves that lie in one buffer, group by group; [] if each has its own."""
    groups: dict[int, list[str]] = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        groups.setdefault(leaf.unsafe_buffer_pointer(), []).append(jax.tree_util.keystr(path))
    return [paths for paths in groups.values() if len(paths) > 1]


def deleted(tree: Tree) -> list[bool]:
    """Whether each leaf is gone, in the order of the leaves; NumPy arrays never are."""
    return [isinstance(x, jax.Array) and x.is_deleted() for x in jax.tree.leaves(tree)]


def live_bytes() -> int:
    """What all living JAX arrays of this process take; a buffer with two names counts once."""
    living = [x for x in jax.live_arrays() if not x.is_deleted()]
    return sum({x.unsafe_buffer_pointer(): x.nbytes for x in living}.values())


AFTER, TWICE, BESIDE = "used after it was donated", "donated twice", "donated and used in one call"
"""What `refusal` says of the three errors that donation can end in."""

_TEXTS = {
    "Array has been deleted": AFTER,
    "deleted or donated": AFTER,
    "donate the same buffer twice": TWICE,
    "previously donated in the same call": BESIDE,
    "also used by the same call": BESIDE,
}


def refusal(run: Callable[[], object]) -> str:
    """Which rule of donation `run()` breaks: AFTER, TWICE or BESIDE; "" when it raises nothing.

    It goes by the text of the error: the class differs between versions of JAX and from the first
    call to the second. What XLA writes to stderr about it is dropped; other errors go through.
    """
    try:
        with captured_stderr():
            run()
    except (RuntimeError, ValueError) as error:
        for text, rule in _TEXTS.items():
            if text in str(error):
                return rule
        raise
    return ""
