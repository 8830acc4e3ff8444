#!/usr/bin/env python3
"""Gradescope's `run_autograder` where marks were made elsewhere: it looks the submitter up.

It runs alone in Gradescope's container, on whatever Python 3 is there: standard library only. No
code of a learner's runs, and nothing of the course is in the zip. `autograder.export` makes it.
"""

import json
import os
import sys
from pathlib import Path


def main(root: Path) -> None:
    """Copies the submitter's results; exits with a line for the instructor where there are none.

    root: Gradescope's folder, with source/marks.json and submission_metadata.json in it.
    """
    marks = json.loads((root / "source" / "marks.json").read_text(encoding="utf-8"))
    metadata = json.loads((root / "submission_metadata.json").read_text(encoding="utf-8"))
    emails = [user["email"].strip().casefold() for user in metadata["users"]]
    logins = [email.partition("@")[0] for email in emails]  # for marks made without a roster
    found = next((marks[key] for key in (*emails, *logins) if key in marks), None)
    if found is None:
        sys.exit("no marks were uploaded for " + ", ".join(u["email"] for u in metadata["users"]))
    results = root / "results" / "results.json"
    results.parent.mkdir(exist_ok=True)
    results.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(Path(os.environ.get("AUTOGRADER_ROOT", "/autograder")))
