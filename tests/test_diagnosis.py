"""Which known mistake an answer is told to look like."""

from collections.abc import Callable

import numpy as np
import pytest

from helpers import expect
from helpers.diagnosis import (
    Misconception,
    failures,
    fingerprint,
    load,
    recognised,
    save,
)
from helpers.exercise import (
    Case,
    Exercise,
    Observation,
    Property,
    Tried,
    observe,
    public_rng,
)


class Doubled(Exercise):
    """Lets be seen how often the answer was called, on which nothing depends."""

    id = "9.1"
    title = "Doubled"
    answer = "doubled"
    properties = {"value": Property("doubles"), "empty": Property("accepts an empty array")}

    def cases(self, rng):
        yield Case("two numbers", np.array([1.0, 4.0]), about=["value"])
        yield Case("no numbers", np.zeros(0), about=["empty"])

    def probe(self, doubled, x):
        return {"y": np.asarray(doubled(x)), "how": getattr(doubled, "how", 0)}

    def judge(self, case, seen):
        (x,) = case
        yield expect.close(case.about[0], seen["y"], 2 * x)


EXERCISE = Doubled()


def tried(answer: Callable[..., object], how: int = 0) -> list[Tried]:
    def doubled(x):
        return answer(x)

    doubled.how = how
    cases = EXERCISE.cases(public_rng(EXERCISE))
    return [Tried(case, observe(EXERCISE, {"doubled": doubled}, case)) for case in cases]


def known(name: str, answer: Callable[..., object], how: int = 0) -> Misconception:
    attempts = tried(answer, how)
    prints = fingerprint(EXERCISE, attempts), failures(EXERCISE, attempts)
    return Misconception("9.1", name, "", "", *prints)


def squared(x):
    return x * x


def cubed(x):
    return x**3


def told(attempts: list[Tried], *bank: Misconception) -> str:
    found = recognised(EXERCISE, attempts, bank)
    return found.name if found else ""


BANK = [known("squares", squared), known("cubes", cubed)]


def test_a_mistake_is_recognised_by_all_that_was_seen():
    assert told(tried(squared), *BANK) == "squares"
    assert told(tried(cubed), *BANK) == "cubes"


def test_in_other_words_it_is_recognised_by_its_failures():
    assert told(tried(lambda x: x**2 * (1 + 1e-6), how=7), *BANK) == "squares"


def test_a_twin_goes_before_what_only_fails_the_same_way():
    bank = [known("squares", squared), known("squares in a loop", squared, how=3)]
    assert told(tried(squared, how=3), *bank) == "squares in a loop"
    assert told(tried(squared, how=0), *bank) == "squares"


def test_what_fails_like_two_known_mistakes_is_called_neither():
    bank = [known("squares", squared), known("squares in a loop", squared, how=3)]
    assert told(tried(squared, how=5), *bank) == ""


@pytest.mark.parametrize("answer", [lambda x: x**2 + 1, lambda x: x[:1] * 2, lambda x: 2 * x])
def test_another_mistake_or_none_is_not_taken_for_a_known_one(answer):
    assert told(tried(answer, how=7), *BANK) == ""


def test_of_an_exception_only_the_class_counts():
    def raising(text):
        def answer(x):
            raise IndexError(text)

        return answer

    bank = [*BANK, known("indexes", raising("index 3 is out of bounds"))]
    assert told(tried(raising("index 8 is out of bounds")), *bank) == "indexes"


def test_the_order_in_which_properties_fail_does_not_matter():
    class Other(Doubled):
        def judge(self, case, seen):
            yield expect.true("empty", False)
            yield from super().judge(case, seen)

    class Same(Other):
        def judge(self, case, seen):
            yield from reversed(list(super().judge(case, seen)))

    assert failures(Other(), tried(cubed)) == failures(Same(), tried(cubed))


def test_a_bank_is_the_same_when_it_was_written_and_read(tmp_path):
    save(tmp_path / "bank.json", BANK)
    assert load(tmp_path / "bank.json") == BANK
    assert load(tmp_path / "none.json") == []


# --- an exercise that says what its mistakes are told by ------------------------------------------


class Shuffle(Exercise):
    """Answers draw in their own way: a mistake is told by the rows that fail."""

    id = "9.2"
    title = "Shuffle"
    answer = "shuffle"
    properties = {"all": Property("keeps all numbers"), "mixed": Property("moves some")}

    def judge(self, case, seen):
        (n,) = case
        yield expect.equal("all", np.sort(seen["order"]), np.arange(n), hint="in order")
        moved = not np.array_equal(seen["order"], np.arange(n))
        yield expect.true("mixed", moved, hint="as it was")

    def told_by(self, case, seen):
        return {"failed": [row.hint for row in self.judge(case, seen) if not row.passed]}


def drawn(**values: object) -> list[Tried]:
    return [Tried(Case("five numbers", 5), Observation(values=values))]


def test_a_mistake_is_known_whatever_the_answer_drew():
    exercise = Shuffle()
    orders = {"loses one": [0, 0, 2, 4, 3], "moves none": [0, 1, 2, 3, 4]}
    bank = [
        Misconception("9.2", name, "", "", fingerprint(exercise, drawn(order=order)), [])
        for name, order in orders.items()
    ]
    found = recognised(exercise, drawn(order=[3, 1, 1, 2, 4]), bank)
    assert found and found.name == "loses one"
    assert recognised(exercise, drawn(order=[4, 3, 2, 1, 0]), bank) is None


def test_a_result_that_no_judge_can_digest_is_told_by_what_it_is():
    assert fingerprint(Shuffle(), drawn(none=1)) == [{"none": 1}]
