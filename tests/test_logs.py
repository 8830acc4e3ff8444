"""What `helpers.logs` collects, on whatever JAX is installed."""

import logging
import os

import jax
import numpy as np
import pytest

from helpers.logs import captured_logs, captured_stderr


def compile_something(size=3):
    def step(x):
        return 2 * x

    return jax.jit(step)(np.ones(size, np.float32))


def logger_state():
    logger = logging.getLogger("jax")
    return list(logger.handlers), logger.propagate, logger.level


def test_a_compilation_gives_four_messages_of_which_one_says_compiling():
    with captured_logs("jax_log_compiles") as messages:
        compile_something()
    assert len(messages) == 4
    assert sum(message.startswith("Compiling jit(step)") for message in messages) == 1
    assert sum(m.startswith("Finished XLA compilation of jit(step) in ") for m in messages) == 1


def test_a_cache_miss_is_explained_by_what_changed():
    f = jax.jit(lambda x: 2 * x)
    f(np.ones(3, np.float32))
    with captured_logs("jax_explain_cache_misses") as messages:
        f(np.ones(4, np.float32))
    assert len(messages) == 1
    assert messages[0].startswith("TRACING CACHE MISS at ")
    assert "now f32[4] and before f32[3]" in messages[0]


def test_a_cached_call_gives_no_message():
    f, x = jax.jit(lambda x: 2 * x), np.ones(3, np.float32)
    f(x)
    with captured_logs("jax_log_compiles", "jax_explain_cache_misses") as messages:
        f(x)
    assert messages == []


def test_nothing_reaches_the_screen(capfd):
    with captured_logs("jax_log_compiles"):
        compile_something()
    assert capfd.readouterr() == ("", "")


def test_flags_and_logger_are_restored_after_an_exception():
    before, flag = logger_state(), jax.config.jax_log_compiles
    with pytest.raises(ZeroDivisionError), captured_logs("jax_log_compiles"):
        _ = 1 / (1 - jax.config.jax_log_compiles)
    assert logger_state() == before
    assert jax.config.jax_log_compiles is flag is False


def test_a_flag_that_was_on_stays_on():
    jax.config.update("jax_log_compiles", True)
    try:
        with captured_logs("jax_log_compiles"):
            pass
        assert jax.config.jax_log_compiles is True
    finally:
        jax.config.update("jax_log_compiles", False)


def test_an_unknown_flag_is_refused_and_changes_nothing():
    before = logger_state()
    with pytest.raises(AttributeError), captured_logs("jax_log_compiles", "jax_log_nonsense"):
        pass
    assert logger_state() == before
    assert jax.config.jax_log_compiles is False


def test_blocks_nest_and_the_inner_one_collects():
    with captured_logs("jax_log_compiles") as outer:
        with captured_logs() as inner:
            compile_something(5)
        compile_something(6)
    assert len(inner) == len(outer) == 4


def test_what_c_writes_to_stderr_is_collected_and_the_descriptor_restored(capfd):
    with captured_stderr() as lines:
        os.write(2, b"E1129 noise\nand more\n")
        assert lines == []
    os.write(2, b"heard")
    assert lines == ["E1129 noise", "and more"]
    assert capfd.readouterr().err == "heard"


def test_stderr_is_restored_when_the_block_raises(capfd):
    with pytest.raises(KeyError), captured_stderr() as lines:
        os.write(2, b"last words")
        raise KeyError
    os.write(2, b"heard")
    assert lines == ["last words"]
    assert capfd.readouterr().err == "heard"
