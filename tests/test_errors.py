"""What `helpers.errors` shows, and when it fails."""

import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.errors import show_error, stable


def fail(message, error=ValueError):
    raise error(message)


def test_the_type_and_the_first_line_are_printed(capsys):
    show_error(fail, "too long\nfor one line\n\nthe end")
    assert capsys.readouterr().out == "ValueError: too long\n"


def test_more_lines_are_printed_without_the_blank_ones(capsys):
    show_error(fail, "\none\n\ntwo\nthree", lines=2)
    assert capsys.readouterr().out == "ValueError: one\ntwo\n"


def test_an_error_without_text_is_shown_by_its_name(capsys):
    show_error(fail, "", error=KeyError, expect=KeyError)
    show_error(lambda: fail("", AssertionError))
    assert capsys.readouterr().out == "KeyError: ''\nAssertionError\n"


def test_the_exception_is_returned():
    error = show_error(fail, "no", expect=ValueError, contains="no")
    assert type(error) is ValueError
    assert error.__traceback__ is None


def test_an_error_of_jax_is_shown(capsys):
    show_error(lambda: jnp.ones(3) + jnp.ones(4), expect=TypeError, contains="(3,), (4,)")
    assert capsys.readouterr().out.startswith("TypeError: add got incompatible shapes")


def test_keywords_reach_the_function(capsys):
    show_error(fail, message="no", error=RuntimeError, expect=(OSError, RuntimeError))
    assert capsys.readouterr().out == "RuntimeError: no\n"


def test_no_error_fails():
    with pytest.raises(
        AssertionError, match=r"^expected TypeError, but nothing was raised: got 3$"
    ):
        show_error(lambda: 3, expect=TypeError)


def test_another_error_fails_and_is_the_cause():
    with pytest.raises(
        AssertionError, match=r"^expected TypeError or OSError, got ValueError: no$"
    ) as e:
        show_error(fail, "no", expect=(TypeError, OSError))
    assert isinstance(e.value.__cause__, ValueError)


def test_another_text_fails():
    with pytest.raises(AssertionError, match=r"^expected 'yes' in the message, got ValueError: no"):
        show_error(fail, "no", contains="yes")


def test_an_interrupt_is_not_caught():
    with pytest.raises(KeyboardInterrupt):
        show_error(fail, "stop", error=KeyboardInterrupt)


def test_the_exception_keeps_no_array_alive(capsys):
    kept = []

    @jax.jit
    def step(x):
        return x + jnp.ones(4)

    def run():
        local = jax.device_put(np.ones(3, np.float32))
        kept.append(weakref.ref(local))
        step(local)

    error = show_error(run, expect=TypeError)
    gc.collect()
    assert kept[0]() is None
    assert "shapes" in str(error)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("<function f at 0x7f3a5c2e1d30>", "<function f at 0x…>"),
        ("f id=139845894758752 defined", "f id=… defined"),
        ("MISS at /tmp/ipykernel_412/3021.py:3:5 (<module>)", "MISS at this cell:3:5 (<module>)"),
        (
            "Finished XLA compilation of jit(f) in 0.042107105 sec",
            "Finished XLA compilation of jit(f) in … sec",
        ),
        (
            "shapes (3,) and (4,), dtype float32, 0x10, 2.5 seconds",
            "shapes (3,) and (4,), dtype float32, 0x10, 2.5 seconds",
        ),
    ],
)
def test_what_differs_from_run_to_run_is_taken_out(text, same):
    assert stable(text) == same
