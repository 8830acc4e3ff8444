"""Gradescope's results.json as its documentation describes it, in JSON Schema's words.

https://gradescope-autograders.readthedocs.io/en/latest/specs/, read in November 2026. What is not
documented there is not allowed here.
"""

from typing import Any

import jsonschema

VISIBILITY = {"enum": ["hidden", "after_due_date", "after_published", "visible"]}
TEST = {
    "type": "object",
    "properties": {
        "score": {"type": "number"},
        "max_score": {"type": "number"},
        "name": {"type": "string"},
        "number": {"type": "string"},
        "output": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "visibility": VISIBILITY,
        "extra_data": {"type": "object"},
    },
    "additionalProperties": False,
}
RESULTS = {
    "type": "object",
    "properties": {
        "score": {"type": "number"},
        "execution_time": {"type": "number"},
        "output": {"type": "string"},
        "visibility": VISIBILITY,
        "stdout_visibility": VISIBILITY,
        "extra_data": {"type": "object"},
        "tests": {"type": "array", "items": TEST},
        "leaderboard": {"type": "array"},
    },
    "additionalProperties": False,
    # a score at the top, or one on each test
    "anyOf": [
        {"required": ["score"]},
        {"required": ["tests"], "properties": {"tests": {"items": {"required": ["score"]}}}},
    ],
}


def validate(results: Any) -> None:
    """Raises jsonschema.ValidationError."""
    jsonschema.validate(results, RESULTS)
