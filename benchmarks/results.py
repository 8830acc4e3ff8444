"""Where results are kept: `build/measured`, from which the book makes its page of measurements."""

import json
import os
from datetime import date

from autograder.course import ROOT

FOLDER = ROOT / "build" / "measured"


def save(name: str, **results: object) -> None:
    """Writes `NAME.json`: the results, the day, and how many processors the machine has."""
    where = {"day": date.today().isoformat(), "processors": os.cpu_count()}
    FOLDER.mkdir(parents=True, exist_ok=True)
    text = json.dumps({**where, **results}, indent=1)
    (FOLDER / f"{name}.json").write_text(text + "\n", encoding="utf-8")
