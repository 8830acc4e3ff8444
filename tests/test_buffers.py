"""What `helpers.buffers` says of memory, on whatever JAX is installed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.buffers import AFTER, BESIDE, TWICE, addresses, deleted, live_bytes, refusal, shared

donating = jax.jit(lambda x, y: (x + 1, y + 2), donate_argnums=(0, 1))
half = jax.jit(lambda x, y: x + y, donate_argnums=0)


def array() -> jax.Array:
    return jnp.array(np.arange(4, dtype=np.float32))


def test_donation_moves_the_addresses_and_deletes_the_arguments() -> None:
    state = {"b": array(), "a": array()}
    before = addresses(state)
    results = donating(state["a"], state["b"])
    assert sorted(addresses(results)) == sorted(before)
    assert deleted(state) == [True, True]
    assert deleted([results, np.zeros(2)]) == [False, False, False]


def test_leaves_in_one_buffer_are_named_by_path() -> None:
    x, y = array(), array()
    assert shared({"a": x, "b": [y, x[:]]}) == [["['a']", "['b'][1]"]]
    assert shared((x, y)) == []


def test_living_bytes_count_a_buffer_once_and_a_deleted_one_not_at_all() -> None:
    before = live_bytes()
    x = array()
    view = x[:]
    assert live_bytes() - before == 16
    x.delete()
    assert view.is_deleted()
    assert live_bytes() == before


@pytest.mark.parametrize("calls", [1, 2])
def test_each_broken_rule_is_known_by_its_text(calls: int, capfd: pytest.CaptureFixture) -> None:
    for _ in range(calls):
        x, y = array(), array()
        assert refusal(lambda x=x: donating(x, x)) == TWICE
        assert refusal(lambda x=x: half(x, x)) == BESIDE
        assert refusal(lambda x=x, y=y: donating(x, y)) == ""
        assert refusal(lambda x=x, y=y: donating(x, y)) == AFTER
        assert refusal(lambda x=x: x + 1) == AFTER
    assert capfd.readouterr().err == ""


def test_other_errors_go_through() -> None:
    with pytest.raises(ValueError, match="something else"):
        refusal(lambda: (_ for _ in ()).throw(ValueError("something else")))
