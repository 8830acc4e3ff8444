"""Quiz questions whose answers are checked by machine, by a run where a run can show them."""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import EllipsisType

from helpers.exercises import CHAPTERS


@dataclass(frozen=True)
class Question:
    """A question with lettered options.

    id: chapter and letter, "1.a". options: text by letter. answer: the right letter.
    why: one sentence that makes it plain. see: the section. run: measures the answer on this
    machine and returns its letter; None where no run can show it.
    """

    id: str
    text: str
    options: Mapping[str, str]
    answer: str
    why: str
    see: str
    run: Callable[[], str] | None = None


def questions_of(chapter: str) -> dict[str, Question]:
    """A chapter's questions by id."""
    module = importlib.import_module(f"helpers.exercises.{chapter}")
    return {question.id: question for question in module.QUIZ}


def quiz(question_id: str, answer: str | EllipsisType = ...) -> None:
    """Prints whether the letter is right, with the reason; a measured question is measured here."""
    number = question_id.split(".")[0]
    chapter = CHAPTERS.get(int(number)) if number.isdigit() else None
    question = questions_of(chapter).get(question_id) if chapter else None
    if question is None:
        print(f"🧪 there is no question {question_id!r}")
    elif answer is ...:
        print(f"✍️ {question_id} not answered yet: put a letter, {', '.join(question.options)}")
    elif answer not in question.options:
        print(f"❌ {question_id}: {answer!r} is none of {', '.join(question.options)}")
    else:
        right = question.run() if question.run else question.answer
        how = "measured here" if question.run else "right"
        if answer == right:
            print(f"✅ {question_id}: {answer} is {how}. {question.why} → §{question.see}")
        else:
            print(f"❌ {question_id}: not {answer}. Reread §{question.see} and try again.")
