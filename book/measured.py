"""The book's page of measurements: whatever `build/measured` holds, as tables and a figure.

Tests and benches write there; the book measures nothing. What is missing is named with the command
that measures it.
"""

import json
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from helpers.plotting import COLORS, figure, png

FIGURE = "cost.png"
ALT = "Bars: CPU seconds that one submission takes, for each way to grade it"


def page(measured: Path, out: Path) -> None:
    """Writes `measured.md` and its figure into a folder."""
    sections = {
        "Chapters": versions(sorted(measured.glob("chapters-*.xml"))),
        "What a submission costs": bench(_read(measured / "bench.json"), out),
        "Classes": scale(_read(measured / "scale.json")),
        "Strength": strength(measured / "strength.json"),
    }
    text = [
        "# Measured",
        "What tests and benches of this book's own checkout found, on the machine that made it.",
    ]
    for title, lines in sections.items():
        text += [f"## {title}", "\n".join(lines)]
    (out / "measured.md").write_text("\n\n".join(text) + "\n", encoding="utf-8")


def versions(files: Sequence[Path]) -> Iterator[str]:
    """A row for each chapter, a column for each Python: its cells, and the seconds they took."""
    if not files:
        yield _missing("chapters")
        return
    suites = [ET.parse(file).getroot().find("testsuite") for file in files]
    runs = {suite.get("name", ""): _chapters(suite) for suite in suites if suite is not None}
    yield "Every cell runs again, and its output must be the committed one. ✅: all of them are.\n"
    rows = sorted({name for run in runs.values() for name in run})
    cells = ([f"`{name}`", *(run.get(name, "not run") for run in runs.values())] for name in rows)
    yield from _table(["", *runs], cells)


def _chapters(suite: ET.Element) -> dict[str, str]:
    found: dict[str, list[ET.Element]] = {}
    for case in suite.iter("testcase"):
        name = case.get("classname", "").removeprefix("chapters.").removesuffix(".ipynb")
        found.setdefault(name, []).append(case)
    return {name: _outcome(cases) for name, cases in found.items()}


def _outcome(cases: Sequence[ET.Element]) -> str:
    faults = sum({"failure", "error"} & {part.tag for part in case} != set() for case in cases)
    seconds = sum(float(case.get("time", 0)) for case in cases)
    said = f"❌ {faults} of {len(cases)} cells" if faults else f"✅ {len(cases)} cells"
    return f"{said}, {seconds:.0f} s"


def bench(found: Mapping[str, Any] | None, out: Path) -> Iterator[str]:
    """Our engine beside the others, as a table and as bars, which lie in the folder then."""
    if found is None:
        yield _missing("bench")
        return
    ways = found["ways"]
    ours = next(iter(ways.values()))["cpu_seconds"]
    yield f"{found['submissions']} submissions to `{found['chapter']}`, each. {_where(found)}\n"
    headings = ["", "CPU seconds", "wall seconds", "peak MB", "CPU, ours = 1"]
    yield from _table(headings, ([name, *_costs(cost, ours)] for name, cost in ways.items()))
    picture = bars({name: cost["cpu_seconds"] for name, cost in ways.items()})
    (out / FIGURE).write_bytes(picture)
    yield f"\n```{{image}} {FIGURE}\n:alt: {ALT}\n:class: dark-light\n```"


def _costs(cost: Mapping[str, float], ours: float) -> list[str]:
    cpu, wall, peak = (cost[name] for name in ("cpu_seconds", "wall_seconds", "peak_mb"))
    return [f"{cpu:.2f}", f"{wall:.2f}", f"{peak:.0f}", f"{cpu / ours:.1f}"]


def bars(seconds: Mapping[str, float]) -> bytes:
    """CPU seconds as bars, each with its number; the first is ours. A PNG."""
    ours, *others = seconds.values()
    title = f"The slowest way takes {max(others) / ours:.0f} times the CPU time of ours"
    size = 7.0, 0.5 * len(seconds) + 1
    fig, ax = figure(title, "CPU time of one submission (s)", "", size)
    colors = [COLORS.right] + [COLORS.reference] * len(others)
    drawn = ax.barh(list(seconds), list(seconds.values()), color=colors, height=0.6)
    ax.bar_label(drawn, fmt="%.1f", padding=4)
    ax.invert_yaxis()
    return png(fig)


def scale(found: Mapping[str, Any] | None) -> Iterator[str]:
    """What a submission costs in classes of several sizes."""
    if found is None:
        yield _missing("bench -- scale 10 100 1000")
        return
    yield f"No two submissions have the same code. {_where(found)}\n"
    headings = ["submissions", "CPU seconds each", "wall seconds each", "processors busy",
                "MB of the grader"]  # fmt: skip
    rows = (
        [
            str(cost["students"]),
            f"{cost['cpu_seconds']:.2f}",
            f"{cost['wall_seconds']:.2f}",
            f"{cost['busy']:.0%}",
            f"{cost['grader_mb']:.0f}",
        ]
        for cost in found["classes"]
    )
    yield from _table(headings, rows)


def strength(file: Path) -> Iterator[str]:
    """How many small changes to taught code and to reference answers something noticed."""
    reports = _read(file)
    if reports is None:
        yield _missing("strength")
        return
    day = date.fromtimestamp(file.stat().st_mtime).isoformat()
    yield (
        "One thing is changed in a taught definition, or in a reference answer, and what uses it "
        f"runs again: some assertion must fail, the answer must lose points. {day}.\n"
    )
    rows = (
        [
            f"`{one['chapter']}`",
            one["part"],
            *(str(one[name]) for name in ("mutants", "equivalent", "killed")),
            f"{one['share']:.1%}",
        ]
        for one in reports
    )
    yield from _table(["", "", "changes", "mean the same", "noticed", "share"], rows)


def _read(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None


def _missing(session: str) -> str:
    return f"Not measured here yet: `uv run noxfile.py -s {session}`, then the book again."


def _where(found: Mapping[str, Any]) -> str:
    return f"{found['processors']} processors, {found['day']}."


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(headings)} |"
    yield f"|---|{'---:|' * (len(headings) - 1)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
