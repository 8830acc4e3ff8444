"""What `helpers.compiles` counts, on whatever JAX is installed."""

import os
import subprocess
import sys
import warnings
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src import monitoring

from helpers.compiles import (
    CompileBudget,
    CompileBudgetExceeded,
    CompileCounter,
    TraceCounter,
    compile_budget,
    count_compiles,
)


def sizes(*lengths):
    """NumPy arrays: they cost no compilation of their own."""
    return [np.ones(n, np.float32) for n in lengths]


def fresh():
    """A jitted function that has never been compiled."""

    def step(x):
        return 2 * x

    return jax.jit(step)


def listeners():
    return list(monitoring.get_event_duration_listeners())


def test_a_first_call_compiles_once_and_a_second_call_not_at_all():
    f, (x,) = fresh(), sizes(3)
    assert count_compiles(f, x) == 1
    assert count_compiles(f, x) == 0


def test_a_new_shape_a_new_dtype_and_a_new_static_value_compile():
    @partial(jax.jit, static_argnames="n")
    def power(x, n):
        return x**n

    with CompileCounter() as counter:
        power(np.ones(3, np.float32), n=2)
        power(np.ones(4, np.float32), n=2)
        power(np.ones(4, np.int32), n=2)
        power(np.ones(4, np.int32), n=3)
    assert counter.names == ["jit(power)"] * 4
    assert len(counter.durations) == 4
    assert all(0 < seconds < 60 for seconds in counter.durations)


def test_a_jit_inside_a_jit_is_part_of_one_compilation():
    inner = fresh()
    assert count_compiles(jax.jit(lambda x: inner(x) + 1), *sizes(3)) == 1


def test_operations_outside_jit_are_counted_under_their_own_names():
    x = jnp.ones(173)
    with CompileCounter() as counter:
        _ = x + 3.0
    assert counter.names == ["jit(add)"]


def test_only_counts_one_function_and_ignores_the_operations_around_it():
    f = fresh()
    with CompileCounter() as everything, CompileCounter(only="step") as steps:
        f(jnp.ones(174))
    assert steps.names == ["jit(step)"]
    assert everything.count > 1
    assert everything.count_of("step") == 1
    assert everything.count_of("st") == 0


def test_compiling_ahead_of_time_is_counted_and_calling_the_result_is_not():
    f, (x,) = fresh(), sizes(3)
    lowered = f.lower(x)
    with CompileCounter() as counter:
        compiled = lowered.compile()
    assert counter.names == ["jit(step)"]
    assert count_compiles(compiled, x) == 0


def test_tracing_alone_compiles_nothing():
    f, (x,) = fresh(), sizes(3)
    assert count_compiles(jax.eval_shape, f, x) == 0
    assert count_compiles(jax.make_jaxpr(f), x) == 0
    assert count_compiles(f.lower, x) == 0


def test_a_hit_of_the_persistent_cache_counts_as_a_compilation(tmp_path):
    program = """
import jax, numpy as np
from helpers.compiles import count_compiles
events = []
jax.monitoring.register_event_listener(lambda event, **_: events.append(event))
compiled = count_compiles(jax.jit(lambda x: x + 1), np.ones(3, np.float32))
print(compiled, events.count("/jax/compilation_cache/cache_hits"))
"""
    environment = os.environ | {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    for hits in (0, 1):
        run = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True
        )
        assert run.stdout == f"1 {hits}\n", run.stderr


def test_nested_counters_see_the_same_compilations():
    f, (a, b) = fresh(), sizes(3, 4)
    with CompileCounter() as outer:
        f(a)
        with CompileCounter() as inner:
            f(b)
    assert (outer.count, inner.count) == (2, 1)


def test_a_counter_that_is_used_again_goes_on_counting():
    f, (a, b, c) = fresh(), sizes(3, 4, 5)
    counter = CompileCounter()
    with counter:
        f(a)
    f(b)
    with counter:
        f(c)
    assert counter.count == 2


def test_a_counter_entered_twice_counts_once():
    f, (a, b) = fresh(), sizes(3, 4)
    counter = CompileCounter()
    with counter:
        with counter:
            f(a)
        f(b)
    assert counter.count == 2


def test_no_listener_stays_behind_even_after_an_exception():
    before = listeners()
    with pytest.raises(ZeroDivisionError), CompileCounter(), CompileBudget(0):
        _ = 1 / 0
    assert listeners() == before


def test_a_counter_hears_nothing_after_its_block():
    f, (a, b) = fresh(), sizes(3, 4)
    with CompileCounter() as counter:
        f(a)
    f(b)
    assert counter.count == 1


def test_arguments_of_a_counted_call_reach_the_function():
    assert count_compiles(lambda x, scale: x * scale, 2, scale=3) == 0
    with pytest.raises(TypeError):
        count_compiles(lambda x: x)


def test_a_trace_counter_counts_traces_and_not_calls():
    traced = TraceCounter(lambda x: x + 1)
    f, (a, b) = jax.jit(traced), sizes(3, 4)
    f(a), f(a), f(b)
    assert traced.count == 2


def test_a_trace_counter_sees_the_traces_that_compile_nothing():
    traced, (x,) = TraceCounter(lambda x: x + 1), sizes(3)
    jax.eval_shape(traced, x)
    assert traced.count == 1


def test_a_trace_counter_sees_a_jit_inside_a_grad_where_the_event_of_jax_does_not():
    traced, (x,) = TraceCounter(lambda x: x.sum()), sizes(3)
    outermost = []

    def listen(event, duration_secs, **details):
        if event.endswith("jaxpr_trace_duration"):
            outermost.append(details["fun_name"])

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        jax.grad(jax.jit(traced))(x)
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert traced.count == 1
    assert "<lambda>" not in outermost


def test_a_traced_function_keeps_its_name_and_its_signature():
    def scaled(x, n):
        return x * n

    f = jax.jit(TraceCounter(scaled), static_argnames="n")
    with CompileCounter() as counter:
        f(*sizes(3), n=2)
    assert counter.names == ["jit(scaled)"]


def test_a_budget_that_is_kept_says_nothing():
    f, (x,) = fresh(), sizes(3)
    with CompileBudget(1) as budget:
        f(x)
        f(x)
    assert budget.count == 1


def test_a_budget_that_is_exceeded_names_every_program_and_its_milliseconds():
    f, g, (a, b) = fresh(), jax.jit(lambda x: x - 1), sizes(3, 4)
    with (
        pytest.raises(
            CompileBudgetExceeded,
            match=r"^serve: budget of 1 compilation exceeded: 3 compiled: "
            r"jit\(step\) \d+ ms, jit\(step\) \d+ ms, jit\(<lambda>\) \d+ ms$",
        ),
        CompileBudget(1, label="serve"),
    ):
        f(a), f(b), g(a)


def test_the_message_has_no_label_and_a_plural_where_it_should():
    budget = CompileBudget(0)
    budget.names, budget.durations = ["jit(f)"], [0.0124]
    assert budget.message() == "budget of 0 compilations exceeded: 1 compiled: jit(f) 12 ms"


def test_an_exceeded_budget_is_a_failed_assertion():
    assert issubclass(CompileBudgetExceeded, AssertionError)


def test_a_budget_can_warn_instead():
    with pytest.warns(RuntimeWarning, match="budget of 0 compilations exceeded: 1 compiled"):  # noqa: SIM117
        with CompileBudget(0, on_excess="warn"):
            fresh()(*sizes(3))


def test_the_warning_points_at_the_line_that_opened_the_budget():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with CompileBudget(0, "warn"):
            fresh()(*sizes(3))
    assert caught[0].filename == __file__


def test_a_budget_does_not_hide_the_exception_of_its_block():
    budget = CompileBudget(0)
    with pytest.raises(ZeroDivisionError), budget:
        _ = fresh()(*sizes(3)) / (1 // 0)
    assert budget.count == 1


def test_a_budget_for_one_function_ignores_the_operations_around_it():
    with CompileBudget(1, only="step") as budget:
        fresh()(jnp.ones(175))
    assert budget.names == ["jit(step)"]


@pytest.mark.parametrize("wrong", [{"limit": -1}, {"limit": 1, "on_excess": "shout"}])
def test_a_budget_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(ValueError, match=r"limit must be 0 or more"):
        CompileBudget(**wrong)


def test_a_decorated_function_has_its_budget_anew_in_every_call():
    f = fresh()

    @compile_budget(1)
    def serve(*batches):
        """Serves."""
        return [f(batch).shape for batch in batches]

    a, b, c, d = sizes(3, 4, 5, 6)
    assert serve(a) == [(3,)]
    assert serve(b) == [(4,)]
    with pytest.raises(CompileBudgetExceeded, match=r"^serve: budget of 1 compilation exceeded: 2"):
        serve(c, d)
    assert (serve.__name__, serve.__doc__) == ("serve", "Serves.")


def test_a_decorator_can_warn_and_be_labelled():
    @compile_budget(0, "warn", "the first request")
    def serve(x):
        return fresh()(x)

    with pytest.warns(RuntimeWarning, match="^the first request: budget"):
        serve(*sizes(3))
