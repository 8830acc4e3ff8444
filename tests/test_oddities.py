"""What a person is asked to read, and what is left alone."""

import pytest

from autograder.oddities import odd

ODD = {
    "import ctypes": "imports `ctypes`",
    "from jax._src import monitoring": "imports `jax._src.monitoring`",
    "import sys\nsys._getframe()": "uses `_getframe`",
    "import sys\nsys.modules['numpy'] = None": "uses `sys.modules`",
    "jax.jit = lambda fn: fn": "changes `jax.jit`",
    "setattr(np, 'allclose', max)": "changes `np`",
    "exec('x = 1')": "uses `exec`",
    "getattr(train, '__globals__')": "uses `__globals__`",
}

PLAIN = [
    "import os\nos.environ['XLA_FLAGS'] = ''",
    "import sys\nprint(sys.version)",
    "class A:\n  def __init__(self):\n    self.x = 1\n    object.__setattr__(self, 'y', 2)",
    "params['w'] = params['w'] - rate\nx = x.at[0].set(1)",
    "program = jax.jit(f).lower(x).compile()",
    "def f(:",
]


@pytest.mark.parametrize(("source", "said"), ODD.items())
def test_what_reaches_below_the_course_is_said(source, said):
    assert said in odd(source)


@pytest.mark.parametrize("source", PLAIN)
def test_what_answers_do_is_not(source):
    assert odd(source) == []
