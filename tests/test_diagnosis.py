"""Which known mistake behaves like an answer: fingerprints, and what they leave out."""

import numpy as np

from helpers import expect
from helpers.diagnosis import Misconception, fingerprint, match
from helpers.exercise import Case, Exercise, Observation, Property, Tried


class Shuffle(Exercise):
    """An exercise whose answers draw in their own way: mistakes are told by the rows that fail."""

    id = "9.1"
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


class Plain(Shuffle):
    """The same, told by everything that was seen."""

    def told_by(self, case, seen):
        return Exercise.told_by(self, case, seen)


def seen(order):
    return [Tried(Case("five numbers", 5), Observation(values={"order": np.array(order)}))]


def known(exercise, name, order):
    return Misconception("9.1", name, "", "", fingerprint(exercise, seen(order)))


def test_a_mistake_is_known_whatever_the_answer_drew():
    bank = [
        known(Shuffle(), "loses one", [0, 0, 2, 4, 3]),
        known(Shuffle(), "moves none", [0, 1, 2, 3, 4]),
    ]
    found = match(fingerprint(Shuffle(), seen([3, 1, 1, 2, 4])), bank)
    assert found and found.name == "loses one"
    assert match(fingerprint(Shuffle(), seen([4, 3, 2, 1, 0])), bank) is None


def test_by_default_a_mistake_is_told_by_all_that_was_seen():
    bank = [known(Plain(), "loses one", [0, 0, 2, 4, 3])]
    assert match(fingerprint(Plain(), seen([3, 1, 1, 2, 4])), bank) is None
    assert match(fingerprint(Plain(), seen([0, 0, 2, 4, 3])), bank)


def test_a_result_that_no_judge_can_digest_is_told_by_what_it_is():
    odd = [Tried(Case("five numbers", 5), Observation(values={"none": 1}))]
    assert fingerprint(Shuffle(), odd) == [{"none": 1}]
