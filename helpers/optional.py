"""Libraries that one chapter needs and the course does without.

It says how to get one that is missing, and lets a notebook end there in peace; it installs nothing.
"""

import contextlib
import importlib.util
import warnings
from collections.abc import Iterator

from helpers.logs import captured_stderr

HOW = """\
This chapter runs on the library {name}, which is not installed here; its cells are skipped.

To add it to the course's environment:  uv run noxfile.py -s {name}
To add it to one of your own:           pip install {name}
Then restart the kernel and run the notebook from the top.\
"""


def require(name: str) -> None:
    """Does nothing where the library is installed; else prints how to, and skips the later cells.

    They run as empty cells, without output or error, until the kernel is restarted.

    Raises:
        ModuleNotFoundError: it is missing, and this is no notebook.
    """
    if importlib.util.find_spec(name):
        return
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    if shell is None:
        raise ModuleNotFoundError(HOW.format(name=name), name=name)
    print(HOW.format(name=name))
    shell.input_transformers_cleanup.append(lambda lines: [])


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Drops what a talkative library prints, displays, warns of and writes to standard error."""
    from IPython.utils.capture import capture_output

    with capture_output(), captured_stderr(), warnings.catch_warnings(action="ignore"):
        yield
