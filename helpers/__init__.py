"""What a chapter imports: measuring, asserting, and the exercises' own language.

`from helpers import CompileCounter, assert_close, check` is all that a notebook needs. Modules are
loaded when a name of theirs is first asked for, so that `helpers.oracle` never brings in JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any

from helpers.quiz import quiz as quiz  # at once: later, the module of this name would hide it

if TYPE_CHECKING:
    from helpers import expect as expect
    from helpers.compiles import CompileBudget as CompileBudget
    from helpers.compiles import CompileBudgetExceeded as CompileBudgetExceeded
    from helpers.compiles import CompileCounter as CompileCounter
    from helpers.compiles import TraceCounter as TraceCounter
    from helpers.compiles import compile_budget as compile_budget
    from helpers.compiles import count_compiles as count_compiles
    from helpers.errors import show_error as show_error
    from helpers.errors import stable as stable
    from helpers.exercise import Case as Case
    from helpers.exercise import Exercise as Exercise
    from helpers.logs import captured_logs as captured_logs
    from helpers.oracle import assert_close as assert_close
    from helpers.oracle import assert_equal as assert_equal
    from helpers.oracle import assert_finite as assert_finite
    from helpers.oracle import assert_ulps as assert_ulps
    from helpers.oracle import to64 as to64
    from helpers.oracle import ulps as ulps
    from helpers.plotting import COLORS as COLORS
    from helpers.plotting import describe as describe
    from helpers.plotting import figure as figure
    from helpers.plotting import label_line as label_line
    from helpers.plotting import use_course_style as use_course_style
    from helpers.selfcheck import check as check
    from helpers.selfcheck import progress as progress
    from helpers.timing import Timing as Timing
    from helpers.timing import assert_faster as assert_faster
    from helpers.timing import bench as bench
    from helpers.timing import format_seconds as format_seconds

_NAMES = {
    "compiles": "CompileBudget CompileBudgetExceeded CompileCounter TraceCounter "
    "compile_budget count_compiles",
    "errors": "show_error stable",
    "exercise": "Case Exercise",
    "logs": "captured_logs",
    "oracle": "assert_close assert_equal assert_finite assert_ulps to64 ulps",
    "plotting": "COLORS describe figure label_line use_course_style",
    "selfcheck": "check progress",
    "timing": "Timing assert_faster bench format_seconds",
}
_MODULE = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Loads the module of a public name when it is first asked for (PEP 562)."""
    if name not in _MODULE:
        raise AttributeError(f"module 'helpers' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"helpers.{_MODULE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE, "expect"})
