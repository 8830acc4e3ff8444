"""Every probe of `helpers.quirks` finds out, and an error in one is no error of the chapter."""

import pytest

from helpers import quirks


@pytest.mark.parametrize("quirk", quirks.PROBES)
def test_a_probe_says_present_or_absent(quirk: str) -> None:
    assert quirks.verdict(quirks.PROBES[quirk]) in ("present", "absent")


def test_a_probe_that_fails_says_with_which_error() -> None:
    def broken() -> bool:
        raise ValueError("no such machine")

    assert quirks.verdict(broken) == "can't tell: ValueError"


def test_settings_are_compared_by_value() -> None:
    assert quirks.Settings(1) == quirks.Settings(1) != quirks.Settings(2)
    assert quirks.Settings(1) != 1
