"""What `helpers.timing` measures and asserts."""

import time

import jax
import numpy as np
import pytest

from helpers.timing import Timing, assert_faster, bench, format_seconds


def nap(seconds):
    return lambda: time.sleep(seconds)


def test_the_median_and_the_best_are_of_the_measured_times():
    timing = Timing((0.4, 0.1, 0.3))
    assert (timing.median, timing.best) == (0.3, 0.1)
    assert str(timing) == "300 ms (median of 3)"


def test_a_function_is_called_for_warming_up_and_for_each_repeat():
    calls = []
    timing = bench(lambda x, y: calls.append(x + y), 1, 2, repeats=4, warmup=3)
    assert calls == [3] * 7
    assert len(timing.times) == 4


def test_compilation_is_not_in_the_figure_unless_nothing_is_warmed_up():
    x = np.ones(3, np.float32)
    cold = bench(jax.jit(lambda x: x + 1), x, repeats=1, warmup=0)
    warm = bench(jax.jit(lambda x: x + 1), x)
    assert cold.median > 5 * warm.median


def test_the_time_is_that_of_the_work_and_not_of_its_dispatch():
    def slow(x):
        return jax.pure_callback(lambda a: (time.sleep(0.03), a)[1], x, x)

    assert bench(jax.jit(slow), np.ones(3, np.float32), repeats=2).best >= 0.03


@pytest.mark.parametrize("wrong", [{"repeats": 0}, {"warmup": -1}])
def test_a_measurement_without_repeats_is_refused(wrong):
    with pytest.raises(ValueError, match="needs repeats"):
        bench(nap(0), **wrong)


def test_the_ratio_of_the_medians_is_returned(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    takes = iter([9, 9, 2, 9, 1, 9, 9, 8, 1, 6])  # of either two to warm up, three measured

    def call():
        now[0] += next(takes)

    assert assert_faster(call, call, by=2, repeats=3) == 3  # 2, 9, 1 against 8, 1, 6


def test_a_claim_that_is_not_true_fails_with_both_medians():
    with pytest.raises(
        AssertionError,
        match=r"^naps: expected at least 2× as fast, got 0\.\d\d× \(\S+ ms against \S+ ms\) "
        r"in the best of 2 attempts$",
    ):
        assert_faster(nap(0.01), nap(0.001), by=2, retries=1, repeats=1, label="naps")


def test_one_disturbed_measurement_is_repeated():
    naps = iter([0.03] * 3)  # two to warm up and one measured; afterwards it does not sleep

    def disturbed():
        time.sleep(next(naps, 0))

    assert assert_faster(disturbed, nap(0.01), by=2, repeats=1) >= 2


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(4.12e-7, "412 ns"), (1.234e-5, "12.3 µs"), (0.00123, "1.23 ms"), (20.06, "20.1 s")],
)
def test_times_are_written_with_three_digits_and_a_unit(seconds, text):
    assert format_seconds(seconds) == text
