"""Numbers and comparatives in the prose, and what in the cells beside them backs each.

It reads a chapter's source and the outputs of its committed notebook; it runs nothing. What passes
need not be true: a number may stand beside the text by chance. What is reported stands nowhere.
"""

import ast
import operator
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from autograder import course
from autograder.assertions import called, is_assertion, parsed
from autograder.course import Chapter
from autograder.problems import Problem
from autograder.source import Cell, prose, short

BACKING = ("setup", "given", "claim", "figure")
"""Roles of the cells that can back a number; a solution or a quiz can't."""


# --- prose ---------------------------------------------------------------------------------------

NO_CLAIM = re.compile(
    r"""
    `[^`]*`                                     # code
    | \$[^$]*\$                                 # a formula
    | ^\s*\d+\.\s                              # an item of a list
    | <[^>]*> | \]\([^)]*\)                     # HTML, the target of a link
    | §\s?[\d.]+                               # a section
    | \b\d+-bit\b
    | (?:\b(?:in|since)\s|\()(?:19|20)\d\d\b     # a year
    | \w+\#\d+ | \bissue\s\d+                    # somebody's bug
    | \b(?:chapters?|exercises?|questions?|proofs?|steps?|rules?|batch|number
        |JAX|jaxlib|Python|NumPy|Kauldron|etils|optax|flax|versions?)
        \s\d[\d.]*\w?(?:(?:,|,?\s(?:to|and|or))\s\d[\d.]*)*
    | ^Reading\s[^.]*\.                         # how long the chapter takes
    | \bhalf\san?\s(?:hour|year)\b
    """,
    re.VERBOSE | re.IGNORECASE | re.MULTILINE,
)
"""What has digits, or words for numbers, and claims nothing."""

SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
DIGITS = re.compile(
    r"""
    (?<![\w.^/]) (?P<mantissa> \d[\d,]*(?:\.\d+)?)
    (?: e(?P<exponent> -?\d+) | (?P<power> [⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+) )?
    (?P<unit> \s?%|\s(?:million|billion|kilobytes|KB|MB|GB)\b|[A-Za-z]*)
    """,
    re.VERBOSE,
)
UNITS = {
    "": (1.0,),
    "%": (1.0, 0.01),
    "million": (1e6,),
    "billion": (1e9,),
    "kilobytes": (1.0, 1e3, 2.0**10),
    "KB": (1.0, 1e3, 2.0**10),
    "MB": (1.0, 1e6, 2.0**20),
    "GB": (1.0, 1e9, 2.0**30),
    **dict.fromkeys(("x", "k", "th", "st", "nd", "rd", "s", "ms"), (1.0,)),
}
"""What may follow digits, and what it may stand for; `2D` and `4x4` are names."""

SMALL = (
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen twenty"
)
WORDS = {word: float(value) for value, word in enumerate(SMALL.split(), 1)}
SHARES = {"twice": 2.0, "half": 2.0, "thrice": 3.0, "quarter": 4.0}
"""Ratios: backed by the number or by its inverse."""

MEASURED = re.compile(
    rf"""
    \b(?P<share> {"|".join(SHARES)})\b
    | \b(?:exactly|at\smost|at\sleast|about|only|nearly|almost)\s(?P<word> {"|".join(WORDS)})\b
    | \b(?P<count> {"|".join(WORDS)})\s(?:times|programs?|compilations?|copies|bytes)\b
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""Words for numbers where they measure something; elsewhere they count what the text lists."""


@dataclass(frozen=True)
class Number:
    """A number as it is written and where, what it may stand for, and half its last digit.

    The half digit is relative to the number.
    """

    text: str
    start: int
    values: tuple[float, ...]
    slack: float = 0.0

    def is_rounded(self, value: float) -> bool:
        """Whether it is this value, rounded; signs are words."""
        return any(abs(abs(value) - own) <= (self.slack + 1e-9) * own for own in self.values)


def numbers_in(text: str) -> Iterator[Number]:
    """The numbers that a text states."""
    for found in DIGITS.finditer(text):
        unit = found["unit"].strip()
        if unit in UNITS:
            yield _number(found, unit)
    for found in MEASURED.finditer(text):
        if found["share"]:
            ratio = SHARES[found["share"].lower()]
            values: tuple[float, ...] = (ratio, 1 / ratio)
        else:
            values = (WORDS[(found["word"] or found["count"]).lower()],)
        yield Number(found[0], found.start(), values)


def _number(found: re.Match[str], unit: str) -> Number:
    digits = found["mantissa"].replace(",", "")
    value = float(digits)
    slack = 0.5 * 10.0 ** -len(digits.partition(".")[2]) / (value or 1.0)
    if found["power"]:
        value, slack = value ** int(found["power"].translate(SUPERSCRIPTS)), 0.0
    value *= 10.0 ** int(found["exponent"] or 0)
    values = tuple(value * scale for scale in UNITS[unit])
    return Number(found[0].strip(" ,.\n"), found.start(), values, slack)


# --- code ----------------------------------------------------------------------------------------

OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
}


def constant(node: ast.AST) -> float | None:
    """The value of arithmetic on literals, `5 * 3 / 8`; None for anything else."""
    if isinstance(node, ast.Constant):
        value = node.value
        return float(value) if isinstance(value, int | float) and value is not True else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = constant(node.operand)
        return None if value is None else -value
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        left, right = constant(node.left), constant(node.right)
        if left is not None and right is not None:
            try:
                return float(OPERATORS[type(node.op)](left, right))
            except (ArithmeticError, TypeError):
                return None
    return None


def constants(tree: ast.AST) -> Iterator[float]:
    """The numbers that stand in code, in its strings too."""
    for node in ast.walk(tree):
        value = constant(node)
        if value is not None:
            yield value
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for number in numbers_in(node.value):
                yield number.values[0]


@dataclass
class Evidence:
    """What a cell says of numbers.

    asserted: in its assertions. ranges: between which two they hold something. shown: in the output
    that every run of the chapter compares. written: anywhere in its code. ordered: whether it
    asserts which of two is larger.
    """

    asserted: list[float] = field(default_factory=list)
    ranges: list[tuple[float, float]] = field(default_factory=list)
    shown: list[float] = field(default_factory=list)
    written: list[float] = field(default_factory=list)
    ordered: bool = False

    def backs(self, number: Number, *, beside: bool) -> bool:
        """Whether the number is in it; what is merely written must stand beside the text."""
        values = self.asserted + self.shown + (self.written if beside else [])
        return any(map(number.is_rounded, values)) or any(
            low <= own <= high for own in number.values for low, high in self.ranges
        )


def evidence_of(cell: Cell, output: str) -> Evidence:
    """What a cell of the source, its quotes expanded, and its output say."""
    found = Evidence()
    if not set(cell.roles) & set(BACKING):
        return found
    tree = parsed(cell.text)
    found.written = list(constants(tree))
    found.shown = [value for number in numbers_in(output) for value in number.values]
    for node in ast.walk(tree):
        if is_assertion(node):
            inside = node.items if isinstance(node, ast.With) else [node]
            for part in (each for item in inside for each in ast.walk(item)):
                found.asserted += constants(part) if part in inside else ()
                found.ordered |= _orders(part)
                found.ranges += _range(part)
    return found


def _orders(node: ast.AST) -> bool:
    """Whether it says which is larger."""
    if isinstance(node, ast.Call) and called(node) in ORDERING:
        return True
    return isinstance(node, ast.Lt | ast.LtE | ast.Gt | ast.GtE)


ORDERING = ("assert_faster", "min", "max", "argmin", "argmax", "sorted", "argsort", "CompileBudget")


def _range(node: ast.AST) -> list[tuple[float, float]]:
    """(1.3, 1.5) of `1.3 < x < 1.5`, where it is narrow enough to be a number."""
    if not isinstance(node, ast.Compare) or len(node.ops) != 2:
        return []
    ends = constant(node.left), constant(node.comparators[-1])
    if ends[0] is None or ends[1] is None:
        return []
    low, high = sorted((ends[0], ends[1]))
    return [(low, high)] if low > 0 and high <= WIDEST * low else []


WIDEST = 1.6
"""How far apart the ends of an asserted range may be, as a ratio."""


# --- the rule ------------------------------------------------------------------------------------

COMPARATIVE = re.compile(
    r"""
    \b(?:fast|slow|small|larg|bigg|cheap|short|long|high|low|few|steep|clos)est\b
    | (?<!no\s)\b(?:(?:fast|slow|small|larg|bigg|cheap|short|long|high|low)er|more|less|fewer)
      \sthan\b (?!\s[\d.]*\d)
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""Where a number follows, the number is what must be backed."""


def numbers_are_backed(
    chapter: Chapter, cells: Sequence[Cell], printed: Mapping[str, str]
) -> Iterator[Problem]:
    """Numbers and comparatives that nothing beside them backs, and exceptions without need.

    A number must stand in the cells next to its text, in an assertion or output of its section, or
    in one of a section that its paragraph refers to; in the opening, of any section. A comparative
    needs an assertion that orders.

    cells: the source's, quotes expanded. printed: the compared output of a code cell, by its text.
    """
    known = exceptions(chapter)
    evidence = [evidence_of(cell, printed.get(cell.text, "")) for cell in cells]
    section = _section_of_each(cells)
    needed: set[str] = set()
    for place, cell in enumerate(cells):
        beside = [evidence[other] for other in _beside(cells, place)]
        for line, text in paragraphs(cell):
            near = {section[place], *re.findall(r"§(\d+\.\d+)", text)}
            around = [e for e, own in zip(evidence, section, strict=True) if own in near]
            claims = NO_CLAIM.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
            for what, start in _unbacked(claims, beside, around if section[place] else evidence):
                reasons = [each for each in known if what in each and each in _flat(text)]
                needed.update(reasons)
                if not reasons:
                    yield Problem(
                        f"{short(cell.path)}:{line + text.count(NEWLINE, 0, start)}",
                        f"no claim backs “{what}”",
                        "assert it in a claim cell beside it, say it otherwise, "
                        f"or give the reason in {EXCEPTIONS}",
                    )
    for phrase in sorted(known.keys() - needed):
        yield Problem(EXCEPTIONS, f"“{phrase}” needs no exception", "take it out")


NEWLINE = "\n"


def paragraphs(cell: Cell) -> Iterator[tuple[int, str]]:
    """The paragraphs of a text and the lines that they begin in; no headings, no tasks.

    A task states what is wanted.
    """
    lines: list[str] = []
    first = 0
    said = [] if cell.exercise else list(prose([cell]))
    for _, line, text in [*said, (cell, 0, "")]:
        if text.strip() and not text.startswith("#"):
            first = first if lines else line
            lines.append(text)
        elif lines:
            yield first, NEWLINE.join(lines)
            lines = []


def _flat(text: str) -> str:
    return " ".join(text.split())


def _unbacked(
    text: str, beside: Sequence[Evidence], around: Sequence[Evidence]
) -> Iterator[tuple[str, int]]:
    """What neither the cells beside a text nor those around it back, and where it stands."""
    for number in numbers_in(text):
        near = any(each.backs(number, beside=True) for each in beside)
        if not near and not any(each.backs(number, beside=False) for each in around):
            yield _flat(number.text), number.start
    for found in COMPARATIVE.finditer(text):
        if not any(each.ordered for each in around):
            yield _flat(found[0]), found.start()


def _section_of_each(cells: Sequence[Cell]) -> list[str]:
    """The number of the section that each cell stands in, "" before the first."""
    found, number = [], ""
    for cell in cells:
        if cell.kind == "markdown":
            heading = re.search(r"^## (\d+\.\d+) ", cell.text, re.MULTILINE)
            number = heading[1] if heading else number
        found.append(number)
    return found


def _beside(cells: Sequence[Cell], place: int) -> list[int]:
    """The code cells before and behind a text, up to the next one."""
    found = []
    for step in (-1, 1):
        other = place + step
        while 0 <= other < len(cells) and cells[other].kind == "code":
            found.append(other)
            other += step
    return found


EXCEPTIONS = "solutions/unbacked.toml"
"""What the prose says and no cell asserts: a piece of the line, and why that is right."""


def exceptions(chapter: Chapter) -> dict[str, str]:
    """The chapter's exceptions: a piece of a line → the reason."""
    path = course.ROOT / EXCEPTIONS
    known = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return dict(known.get(chapter.name, {}))
