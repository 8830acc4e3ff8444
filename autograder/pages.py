"""What our pages share: their templates, and the titles of chapters and sections."""

import functools

import jinja2
from markupsafe import Markup, escape

from autograder import source
from autograder.course import Chapter
from autograder.wording import number, points, score


def template(name: str) -> jinja2.Template:
    """A template of `autograder/templates`; what it is given is escaped."""
    return _environment().get_template(name)


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("autograder"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"points": points, "number": number, "code_spans": code_spans}
    environment.globals["score"] = score
    return environment


def code_spans(text: str) -> Markup:
    """The text escaped, with what stands between backticks set as code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # an odd backtick at the end: leave it alone
        parts[-2:] = ["`".join(parts[-2:])]
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if number % 2 else escape(part)
        for number, part in enumerate(parts)
    )


def percent(got: float, of: float) -> float:
    """To one digit behind the point; 0 of nothing is 0."""
    return round(100 * got / of, 1) if of else 0.0


def sections(chapter: Chapter) -> dict[str, str]:
    """Titles of the chapter's sections by number, and its own, `01 · Recompilation`, under ""."""
    return _sections(chapter, str(chapter.source))


@functools.lru_cache(maxsize=32)
def _sections(chapter: Chapter, _source: str) -> dict[str, str]:
    cells = source.read(chapter)
    heading = next((c.text for c in cells if c.kind == "markdown" and c.text.startswith("# ")), "")
    title = heading.split("\n")[0].removeprefix("# ").split("·")[-1].strip()
    own = f"{chapter.number:02d} · {title or chapter.name.capitalize()}"
    return source.sections(cells) | {"": own}
