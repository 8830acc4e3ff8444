"""The class report: its statistics against NumPy, what it says of the sample class, a good page."""

import csv
import math
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
from html_page import Page
from typer.testing import CliRunner

from autograder import course, feedback, items, marks, report
from autograder.cli import app
from autograder.course import ROOT
from autograder.results import Graded, Submission
from helpers.diagnosis import Misconception
from helpers.exercise import Assessment

CHAPTER = course.chapter("recompilation")
EXPECTED = ROOT / "tests" / "sample_class" / "expected"
STUDENTS = sorted(path.stem for path in EXPECTED.glob("*.csv"))
EVIL = '<script>alert("x")</script>'


# --- numbers -------------------------------------------------------------------------------------


def test_difficulty_is_the_mean_share_of_the_points() -> None:
    assert items.difficulty([4, 2, 0, 4], 4) == 10 / 16
    points = np.random.default_rng(0).integers(0, 5, 40)
    assert items.difficulty(points.tolist(), 4) == pytest.approx((points / 4).mean(), rel=1e-15)


def test_discrimination_is_the_correlation_with_the_rest() -> None:
    rng = np.random.default_rng(1)
    points = np.round(rng.uniform(0, 4, 50), 2)
    rest = np.round(points + rng.normal(5, 2, 50), 2)
    found = items.discrimination(points.tolist(), (points + rest).tolist())
    assert found == pytest.approx(np.corrcoef(points, rest)[0, 1], rel=1e-12)


def test_discrimination_of_right_and_wrong_is_the_point_biserial() -> None:
    right = [0, 0, 0, 0, 0, 1, 1, 1, 1, 1]
    totals = [rest + own for rest, own in zip(range(1, 11), right, strict=True)]
    by_hand = (8 - 3) / math.sqrt(8.25) * math.sqrt(0.5 * 0.5)  # (M1 - M0) / s √(pq)
    assert items.discrimination(right, totals) == pytest.approx(by_hand, rel=1e-12)


@pytest.mark.parametrize(
    ("points", "totals", "why"),
    [
        ([0, 1] * 4 + [1], list(range(9)), "too few"),
        ([0.1] * 10, [0.1 * n for n in range(10)], "all alike"),
        ([0.1 * n for n in range(10)], [0.1 * n + 0.2 for n in range(10)], "nothing to compare"),
    ],
)
def test_a_correlation_that_means_nothing_says_why(
    points: list[float], totals: list[float], why: str
) -> None:
    with pytest.raises(items.Undefined, match=why):
        items.discrimination(points, totals)


def test_the_standard_error_is_that_of_unrelated_numbers() -> None:
    draws = np.random.default_rng(2).normal(size=(2, 20_000, 10))
    x, y = (draws - draws.mean(-1, keepdims=True)) / draws.std(-1, keepdims=True)
    found = (x * y).mean(-1)
    assert np.std(found) == pytest.approx(items.standard_error(10), rel=0.03)


def test_all_points_stand_in_the_last_tenth_and_none_in_the_first() -> None:
    found = [report.tenth(points, 22) for points in (0, 2.19, 2.2, 15.4, 19.8, 21.99, 22)]
    assert found == [0, 0, 1, 7, 9, 9, 9]
    assert report.tenth(0, 0) == 0


# --- the sample class ----------------------------------------------------------------------------


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def graded(student: str) -> Graded:
    """What the sample class's expected marks say of a student, as the grader would leave it."""
    found, known = {}, {}
    bank = {(answer.exercise, answer.name): answer for answer in CHAPTER.answers}
    for row in rows(EXPECTED / f"{student}.csv"):
        key, exercise = row["exercise"], CHAPTER.exercises[row["exercise"]]
        points = float(row["points"])
        found[key] = Assessment(key, exercise.title, row["verdict"], points, exercise.points, ())  # type: ignore[arg-type]
        if row["diagnosis"]:
            answer = bank[key, row["diagnosis"]]
            known[key] = Misconception(key, answer.name, answer.hint, answer.see, [], [])
    person = tuple(f"{k} tampers" for k, each in found.items() if each.verdict == "tampered")
    submission = Submission(student, CHAPTER.name, Path("x.ipynb"))
    return Graded(submission, found, known, dict.fromkeys(found, 0.5), 2.25, 300.4, person)


def results(folder: Path, *class_: Graded) -> Path:
    """A results folder with what the report reads, by the writers of `autograder grade`."""
    marks.write(folder, [(each, CHAPTER) for each in class_])
    for each in class_:
        feedback.write(each, CHAPTER, folder / "feedback")
    return folder


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return results(tmp_path_factory.mktemp("class"), *map(graded, STUDENTS))


@pytest.fixture(scope="module")
def html(sample: Path) -> str:
    report.write(sample)
    return (sample / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(html: str) -> Page:
    return Page(html)


def test_it_says_how_many_and_how_well(page: Page) -> None:
    shares = [float(each.points) / each.max_points for each in map(graded, STUDENTS)]
    points = [each.points for each in map(graded, STUDENTS)]
    assert f"12 students, 12 submissions {100 * np.mean(shares):.0f} % of the points" in page.text
    assert "12 submissions could be judged. 1 needs a person." in page.text
    assert f"mean {np.mean(points):.2f}, median {np.median(points):g} of 22 points" in page.text


def test_the_distribution_counts_every_submission_once(sample: Path) -> None:
    (part,) = report.read(sample, sample)
    points = [each.points for each in map(graded, STUDENTS)]
    bins = np.histogram(points, bins=10, range=(0, 22))[0]
    assert part.bins == bins.tolist()
    assert part.told.startswith("1 at 0 to 10 percent, 1 at 30 to 40 percent")


def test_each_exercise_has_its_numbers_on_the_page_and_in_the_table(
    sample: Path, page: Page
) -> None:
    every = [row | {"student": s} for s in STUDENTS for row in rows(EXPECTED / f"{s}.csv")]
    totals = np.array([each.points for each in map(graded, STUDENTS)])
    table = rows(sample / "report.csv")
    assert [row["exercise"] for row in table] == list(CHAPTER.exercises)
    for row in table:
        mine = [each for each in every if each["exercise"] == row["exercise"]]
        points = np.array([float(each["points"]) for each in mine])
        difficulty = points.mean() / CHAPTER.exercises[row["exercise"]].points
        discrimination = np.corrcoef(points, totals - points)[0, 1]
        assert row["difficulty"] == f"{difficulty:.3f}"
        assert row["discrimination"] == f"{discrimination:.3f}"
        counts = Counter(each["verdict"] for each in mine)
        assert {verdict: int(row[verdict]) for verdict in report.BADGES} == {
            verdict: counts[verdict] for verdict in report.BADGES
        }
        assert f"{difficulty:.2f} {discrimination:.2f} {counts['full']} " in page.text


def test_mistakes_are_explained_counted_and_name_who_made_them(page: Page, html: str) -> None:
    assert "1 in 1.4: “the rate is static” A static argument is part of the cache key" in page.text
    assert "→ §1.8 What changes at every step is an argument who gus" in page.text
    assert html.count('class="strip"') == 3  # emil, fay and gus


def test_the_most_frequent_mistake_comes_first(tmp_path: Path) -> None:
    def called(name: str, like: str) -> Graded:
        return replace(graded(like), submission=Submission(name, CHAPTER.name, Path("x")))

    report.write(results(tmp_path, called("a", "emil"), called("b", "gus"), called("c", "gus")))
    text = Page((tmp_path / "report.html").read_text()).text
    first, second = text.index("2 in 1.4: “the rate"), text.index("1 in 1.1: “masks the numerator")
    assert first < second
    assert "who b, c" in text


def test_who_needs_a_person_is_named_with_why_and_their_page(page: Page) -> None:
    assert "Needs a person kim, recompilation: 1.2 tampers 01 · " in page.text
    assert ("a", "href", "feedback/kim/recompilation.html") in page.attributes


def test_time_and_memory_are_told(page: Page) -> None:
    told = "median 2.5 s, longest 2.5 s, CPU time of all 27 s, most memory 300 MB"
    assert told in page.text
    assert "ada recompilation 22 of 22 100 2.5 2.2 300" in page.text


def test_links_lead_to_the_feedback_from_wherever_the_page_is(sample: Path, tmp_path: Path) -> None:
    page, table = report.write(sample, tmp_path / "deep" / "page.html")
    assert (page, table) == (tmp_path / "deep" / "page.html", tmp_path / "deep" / "page.csv")
    links = [
        page.parent / unquote(value)
        for _, name, value in Page(page.read_text()).attributes
        if name == "href" and not value.startswith(("#", "data:"))
    ]
    assert len(links) > len(STUDENTS)
    assert all(link.is_file() for link in links)


# --- a good page ---------------------------------------------------------------------------------


def test_it_is_well_formed_and_asks_nothing_of_the_network(html: str, page: Page) -> None:
    assert page.wrong == []
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert len(set(ids)) == len(ids)
    links = [value for _, name, value in page.attributes if name == "href"]
    assert {link[1:] for link in links if link.startswith("#")} <= set(ids)
    assert not re.search(r"https?:|//|url\(|@import|<script|javascript:", html)
    assert "default-src 'none'" in html


def test_figures_and_tables_have_text_for_who_can_not_see_them(html: str) -> None:
    figures = re.findall(r'<svg class="figure".*?</svg>', html, re.DOTALL)
    assert len(figures) == 2
    for figure in figures:
        named = re.search(r'role="img" aria-labelledby="(\S+) (\S+)"', figure)
        assert named
        assert re.search(rf'<title id="{named[1]}">\w.+</title>', figure)
        assert re.search(rf'<desc id="{named[2]}">\w.+</desc>', figure)
    tables = re.findall(r"<table>.*?</table>", html, re.DOTALL)
    assert len(tables) == 2
    for table in tables:
        assert "<caption>" in table
        heads = re.findall(r"<th\b[^>]*>", table)
        assert heads
        assert all("scope=" in head for head in heads)


def test_what_came_from_a_learner_is_escaped(tmp_path: Path) -> None:
    named = Submission("a/<b> & ?#c".replace("/", ""), CHAPTER.name, Path("x"))
    one = replace(graded("kim"), submission=named, person=(EVIL,))
    report.write(results(tmp_path, one))
    html = (tmp_path / "report.html").read_text()
    assert "<script" not in html
    assert "<b> " not in html
    assert EVIL in Page(html).text
    (link,) = {v for t, n, v in Page(html).attributes if n == "href" and "feedback" in v}
    assert (tmp_path / unquote(link)).is_file()


# --- small classes and bad folders ---------------------------------------------------------------


def test_of_one_student_there_is_no_correlation(tmp_path: Path) -> None:
    report.write(results(tmp_path, graded("gus")))
    text = Page((tmp_path / "report.html").read_text()).text
    assert "1 student, 1 submission 93 % of the points on average" in text
    assert "1.4 A learning-rate loop that compiles once 2.4 of 4 0.60 – too few · 1" in text
    assert {row["discrimination"] for row in rows(tmp_path / "report.csv")} == {""}


def test_what_could_not_be_judged_is_named_and_does_not_count(tmp_path: Path) -> None:
    none = {
        key: Assessment(key, each.title, "error", 0.0, each.points, ())
        for key, each in CHAPTER.exercises.items()
    }
    lost = Graded(Submission("zoe", CHAPTER.name, Path("x")), none, person=("The file is empty.",))
    report.write(results(tmp_path / "two", graded("ada"), lost))
    text = Page((tmp_path / "two" / "report.html").read_text()).text
    assert "100 % of the points on average 1 submission could be judged; the other does not" in text
    assert "zoe, recompilation: The file is empty." in text
    assert "zoe (needs a person) recompilation not judged" in text

    report.write(results(tmp_path / "one", lost))
    text = Page((tmp_path / "one" / "report.html").read_text()).text
    assert "1 submission, none of which could be judged." in text
    assert rows(tmp_path / "one" / "report.csv") == []


def spoil(sample: Path, folder: Path, name: str, old: str, new: str) -> None:
    for each in (marks.MARKS, marks.SUBMISSIONS):
        text = (sample / each).read_text()
        (folder / each).write_text(text.replace(old, new) if each.endswith(name) else text)


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("marks.csv", "ada,recompilation,1.2,5", "ada,recompilation,1.2,five", "line 3: could not"),
        ("marks.csv", ",full,", ",fulll,", "line 2: there is no verdict 'fulll'"),
        ("marks.csv", "max_points", "maximum", "line 1: the column max_points is not there"),
        ("marks.csv", "ada,", "adam,", "adam's recompilation is in marks.csv and not in"),
        ("submissions.csv", "yes", "yes,1\nyes", "line"),
        ("submissions.csv", "recompilation", "nan_safety", "is in marks.csv and not in submission"),
        (".csv", "recompilation", "decoration", "there is no chapter 'decoration'; there are"),
    ],
)
def test_a_table_that_can_not_be_read_is_named_with_the_line(
    sample: Path, tmp_path: Path, name: str, old: str, new: str, said: str
) -> None:
    spoil(sample, tmp_path, name, old, new)
    done = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert done.exit_code == 2
    assert re.search(said, done.output)
    assert len(done.output.splitlines()) == 1
    assert not list(tmp_path.glob("report.*"))


def test_a_folder_without_marks_is_told_what_to_do(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["report", str(tmp_path / "none")])
    assert done.exit_code == 2
    assert "marks.csv: No such file" in done.output
    assert f"`autograder grade PATH... --out {tmp_path / 'none'}` writes it" in done.output
    marks.write(tmp_path, [])
    done = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert (done.exit_code, done.output) == (2, f"{tmp_path}: nothing was graded into it\n")


def test_a_page_that_the_table_would_overwrite_is_refused(sample: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["report", str(sample), "--to", str(tmp_path / "x.csv")])
    assert (done.exit_code, len(done.output.splitlines())) == (2, 1)
    assert "name the page *.html" in done.output
    assert list(tmp_path.iterdir()) == []


def test_the_command_says_what_it_wrote(sample: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["report", str(sample), "--to", str(tmp_path / "x.html")])
    assert done.exit_code == 0
    assert done.output == f"wrote {tmp_path / 'x.html'}\nwrote {tmp_path / 'x.csv'}\n"
