"""Which files were handed in, by whom: folders, nbgrader trees, single notebooks, zips, downloads.

It opens archives and reads bytes; what is in a notebook is `autograder.submission`'s. Nothing is
unpacked to disk, no link is followed, and nothing that a learner named leads out of what was given.
"""

import datetime
import hashlib
import io
import os
import re
import stat
import unicodedata
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from autograder import course

MEGABYTE = 1 << 20
MAX_BYTES = 100 * MEGABYTE
"""The largest file that is opened."""

MAX_LISTING = 16 * MEGABYTE
"""The longest table of contents of a zip, some 100,000 files."""

MAX_FILES = 20_000
"""How many files one path may hold: more is another folder than the one that was meant."""

MAX_NOTEBOOKS, MAX_EXPANDED = 50, 500 * MEGABYTE
"""What a learner's zip may hold; for one that the instructor names these don't count."""

MAX_NESTED, MAX_ZIPS = 2, 3
"""How deep zips of a learner's may lie in each other, and how many side by side."""

HAND_IN = "Hand in the notebook itself."
MAYBE = ("", ".json", ".py", ".txt")
"""How files may end that are no notebooks by their name, but may be read like one."""

SENT = (".7z", ".doc", ".docx", ".gz", ".htm", ".html", ".pdf", ".py", ".rar", ".tar", ".tgz")
"""How files end that somebody handed in, where notebooks lie side by side without folders."""

IGNORED = {"__MACOSX", "autograded", "feedback"}
SUBMITTED = "submitted"
"""nbgrader's folder: submitted/<student>/<assignment>/<notebook>.ipynb."""


class NothingThere(ValueError):
    """A path that does not exist, or with nothing in it that was handed in."""


class Unreadable(ValueError):
    """The file can't be read; the message is a sentence for whoever handed it in."""


@dataclass(frozen=True)
class Found:
    """One file that was handed in.

    student: from its place or its name. path: on disk. inner: its name in the zip at `path`, and
    so on for a zip in a zip. folders: the folders between what was searched and the file.
    when: seconds since the epoch. stamped: whether that is the time of handing in, by nbgrader's
    timestamp.txt or the place's name, and not only the file's date.
    problem: why it can't be opened, "" if it can.
    """

    student: str
    path: Path
    inner: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    when: float = 0.0
    stamped: bool = False
    problem: str = ""

    @property
    def name(self) -> str:
        """The file's own name."""
        return PurePosixPath(self.inner[-1]).name if self.inner else self.path.name

    def read(self) -> bytes:
        """Its bytes. Raises Unreadable."""
        if self.problem:
            raise Unreadable(self.problem)
        try:
            if not self.inner:
                return _read_file(self.path)
            data: Path | io.BytesIO = self.path
            for name in self.inner:
                with zipfile.ZipFile(data) as opened:
                    data = io.BytesIO(_read_member(opened, name))
            assert isinstance(data, io.BytesIO)
            return data.getvalue()
        except OSError as error:
            raise Unreadable(f"The file can't be read: {error.strerror or error}.") from error
        except (zipfile.BadZipFile, NotImplementedError, EOFError, KeyError) as error:
            raise Unreadable(f"The zip is damaged: {error}. {HAND_IN}") from error


def find(paths: Sequence[Path], skip: Path | None = None) -> list[Found]:
    """What was handed in under the paths, in a fixed order; each file once.

    skip: a folder to leave out, such as the one that results go to. Raises NothingThere.
    """
    found: dict[tuple[Path, tuple[str, ...]], Found] = {}
    for path in paths:
        here = _in_path(path, skip)
        if not here:
            raise NothingThere(f"{path}: there is no notebook in it")
        found.update({(each.path, each.inner): each for each in here})
    return list(found.values())


# --- looking into folders and zips ---------------------------------------------------------------


@dataclass(frozen=True)
class _Loose:
    """A file before it is known whose it is. place: its folders and name, zips being folders."""

    place: tuple[str, ...]
    path: Path
    inner: tuple[str, ...] = ()
    when: float = 0.0
    stamped: bool = False
    problem: str = ""


def _in_path(path: Path, skip: Path | None) -> list[Found]:
    if not path.exists():
        raise NothingThere(f"{path}: there is no such file or folder")
    path = path.resolve()
    if path.is_dir():
        root = path / SUBMITTED if (path / SUBMITTED).is_dir() else path
        loose = list(_in_folder(root, skip.resolve() if skip else None))
        return _sorted_out(loose, root.parts)
    if zipfile.is_zipfile(path):
        inside = list(_in_zip(path, (), (), trusted=True))
        return _sorted_out(inside, (*path.parent.parts, path.stem))
    alone = list(_in_file(path, (), _timestamp(path.parent / "timestamp.txt")))
    return [_attributed(each, (path.name,), path.parent.parts) for each in alone]


def _in_folder(root: Path, skip: Path | None) -> Iterator[_Loose]:
    count = 0
    for top, folders, files in os.walk(root):
        here = Path(top)
        folders[:] = sorted(name for name in folders if not _ignored(name) and here / name != skip)
        place = here.relative_to(root).parts
        links = [name for name in folders if (here / name).is_symlink()]
        stamp = _timestamp(here / "timestamp.txt")
        for name in sorted([*files, *links]):
            count += 1
            if count > MAX_FILES:
                raise NothingThere(
                    f"{root}: more than {MAX_FILES} files: is this the right folder?"
                )
            if not _ignored(name) and name != "timestamp.txt":
                yield from _in_file(here / name, place, stamp)


def _in_file(path: Path, place: tuple[str, ...], stamp: float | None) -> Iterator[_Loose]:
    """A file of a folder, or what is in it where it is a zip."""
    status = path.lstat()
    when, stamped = (status.st_mtime, False) if stamp is None else (stamp, True)
    loose = _Loose((*place, path.name), path, (), when, stamped)
    if not stat.S_ISREG(status.st_mode):
        if _is_notebook(path.name):
            kind = "a link" if stat.S_ISLNK(status.st_mode) else "no ordinary file"
            yield replace(loose, problem=f"“{path.name}” is {kind}: hand in the notebook itself.")
    elif path.suffix.lower() == ".zip":
        yield from _in_zip(path, (), (*place, path.stem), trusted=False)
    else:
        yield loose


def _in_zip(
    path: Path, inner: tuple[str, ...], place: tuple[str, ...], *, trusted: bool
) -> Iterator[_Loose]:
    """The files of a zip. trusted: the instructor named it, so it may hold a whole class."""
    itself = _Loose((*place[:-1], f"{place[-1]}.zip") if place else (path.name,), path, inner)
    try:
        with zipfile.ZipFile(_checked_zip(Found("", path, inner))) as opened:
            members = [each for each in opened.infolist() if not each.is_dir()]
    except Unreadable as error:
        yield replace(itself, problem=str(error))
        return
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        yield replace(itself, problem=f"The zip can't be opened: {error}. {HAND_IN}")
        return
    notebooks = sum(_is_notebook(each.filename) for each in members)
    expanded = sum(each.file_size for each in members if _is_notebook(each.filename))
    zips = sum(each.filename.lower().endswith(".zip") for each in members)
    if len(members) > MAX_FILES or (
        not trusted and (notebooks > MAX_NOTEBOOKS or expanded > MAX_EXPANDED or zips > MAX_ZIPS)
    ):
        size = f"{notebooks} notebooks of {expanded // MEGABYTE} MB"
        what = f"The zip holds too much: {len(members)} files, {size}."
        yield replace(itself, problem=f"{what} {HAND_IN}")
        return
    inside = [
        each
        for member in members
        for each in _in_member(path, inner, place, member, trusted=trusted)
    ]
    if not inside and not trusted:
        yield replace(itself, problem=f"The zip has no file in it. {HAND_IN}")
    yield from inside


def _in_member(
    path: Path,
    inner: tuple[str, ...],
    place: tuple[str, ...],
    member: zipfile.ZipInfo,
    *,
    trusted: bool,
) -> Iterator[_Loose]:
    parts = PurePosixPath(member.filename.replace("\\", "/")).parts
    if any(_ignored(part) and part not in ("..", ".") for part in parts):
        return
    when = _zip_time(member)
    problem = _danger(member, parts)
    safe = tuple(part for part in parts if part not in ("/", ".", ".."))
    loose = _Loose((*place, *safe), path, (*inner, member.filename), when, problem=problem)
    nested = parts[-1].lower().endswith(".zip")
    if problem:
        if nested or _is_notebook(parts[-1]):
            yield loose
    elif nested and (trusted or len(inner) < MAX_NESTED):
        folder = (*place, *safe[:-1], safe[-1][:-4])
        yield from _in_zip(path, loose.inner, folder, trusted=False)
    elif parts[-1] != "timestamp.txt":
        yield loose


def _danger(member: zipfile.ZipInfo, parts: tuple[str, ...]) -> str:
    """Why a file of a zip is not opened, "" if it may be."""
    if ".." in parts or parts[:1] == ("/",) or ":" in parts[0]:
        return f"“{_shown(member.filename)}” would climb out of the zip: it was not opened."
    if stat.S_ISLNK(member.external_attr >> 16):
        return f"“{_shown(member.filename)}” is a link: hand in the notebook itself."
    if member.flag_bits & 1:
        return f"“{_shown(member.filename)}” is locked by a password: hand in the notebook itself."
    return ""


def _checked_zip(zipped: Found) -> io.BytesIO | Path:
    """The zip, if its table of contents is not too long to be read."""
    data = zipped.path if not zipped.inner else io.BytesIO(zipped.read())
    size = data.stat().st_size if isinstance(data, Path) else len(data.getbuffer())
    with data.open("rb") if isinstance(data, Path) else io.BytesIO(data.getbuffer()) as stream:
        stream.seek(max(0, size - 0x10100))
        end = stream.read()
    at = end.rfind(b"PK\x05\x06")
    if at < 0:
        raise Unreadable(f"The zip is damaged: it has no end. {HAND_IN}")
    if int.from_bytes(end[at + 12 : at + 16], "little") > MAX_LISTING:
        raise Unreadable(f"The zip lists too many files. {HAND_IN}")
    return data


def _read_file(path: Path) -> bytes:
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise Unreadable(too_large(size))
    return path.read_bytes()


def _read_member(opened: zipfile.ZipFile, name: str) -> bytes:
    member = opened.getinfo(name)
    if member.file_size > MAX_BYTES:
        raise Unreadable(too_large(member.file_size))
    with opened.open(member) as stream:
        return stream.read(MAX_BYTES + 1)[:MAX_BYTES]


def too_large(size: int) -> str:
    """What is said about a file of this many bytes."""
    return f"A file of {size // MEGABYTE} MB is too large: clear its outputs and hand it in again."


def _is_notebook(name: str) -> bool:
    """Whether a file calls itself a notebook, also as browsers save it (x.ipynb.txt)."""
    return ".ipynb" in PurePosixPath(name.lower()).name


def _ignored(name: str) -> bool:
    return name.startswith(".") or name in IGNORED


def _zip_time(member: zipfile.ZipInfo) -> float:
    try:
        return datetime.datetime(*member.date_time).timestamp()
    except (ValueError, OverflowError, OSError):
        return 0.0


def _timestamp(path: Path) -> float | None:
    """What nbgrader's timestamp.txt says, None where there is none that can be read."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size > 1000:
        return None
    return parse_time(path.read_text(encoding="utf-8", errors="replace"))


def parse_time(text: str) -> float | None:
    """Seconds since the epoch of "2026-01-31 12:00:00.123456 UTC", in UTC unless it says else."""
    text = re.sub(r"\s*(UTC|Z)$", "+00:00", text.strip())
    text = re.sub(r"(\d{4}-\d\d-\d\d)-(\d\d)-(\d\d)-(\d\d)", r"\1T\2:\3:\4", text)
    try:
        parsed = datetime.datetime.fromisoformat(text.replace(" +", "+"))
    except ValueError:
        return None
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=datetime.UTC)).timestamp()


# --- whose it is ---------------------------------------------------------------------------------


def _sorted_out(loose: Sequence[_Loose], above: tuple[str, ...]) -> list[Found]:
    """Notebooks with their students; where a student's folder has none, what there is instead."""
    wrappers = _wrappers([each.place for each in loose], above[-1])
    flat = any(_is_notebook(each.place[-1]) and len(each.place) - wrappers == 1 for each in loose)
    found: list[Found] = []
    others: list[tuple[str, _Loose]] = []
    for each in loose:
        attributed = _attributed(each, each.place[wrappers:], above)
        if each.problem or _is_notebook(each.place[-1]):
            found.append(attributed)
        elif len(each.place) - wrappers > 1 or _handed_in_alone(each.place[-1], flat):
            others.append((attributed.student, each))
    known = {each.student for each in found}
    for student in dict.fromkeys(student for student, _ in others):
        if student not in known:
            theirs = [each for whose, each in others if whose == student]
            found += [_attributed(each, each.place[wrappers:], above) for each in _likely(theirs)]
    return sorted(found, key=lambda each: (each.student, str(each.path), each.inner))


def _handed_in_alone(name: str, flat: bool) -> bool:
    """Whether a file in no student's folder is one's all the same, and not the instructor's."""
    ending = PurePosixPath(name.lower()).suffix
    if ending in (".csv", ".xlsx"):
        return False  # marks or a roster
    return bool(_BLACKBOARD.match(name) or _MOODLE.match(name) or _CANVAS.match(name)) or (
        flat and ending in SENT
    )


def _likely(files: Sequence[_Loose]) -> list[_Loose]:
    """Of a student's files without a notebook among them, those that may be one, else one."""
    maybe = [x for x in files if PurePosixPath(x.place[-1].lower()).suffix in MAYBE]
    if maybe:
        return maybe[:MAX_NOTEBOOKS]
    what = f"“{_shown(files[0].place[-1])}” is no notebook: hand in the file that ends in .ipynb."
    return [replace(files[0], problem=what)]


def _wrappers(places: Sequence[tuple[str, ...]], top: str) -> int:
    """How many folders everything lies in together, such as the one that a zip was made of."""
    depth = 0
    slugs = {chapter.slug for chapter in course.chapters()}
    while places and all(len(place) > depth + 1 for place in places):
        wrapper = {place[depth] for place in places}
        below = {place[depth + 1] for place in places if len(place) > depth + 2} - slugs
        if len(wrapper) > 1 or (wrapper != {top} and len(below) < 2):
            break
        depth += 1
    return depth


def _attributed(loose: _Loose, place: tuple[str, ...], above: tuple[str, ...]) -> Found:
    """Whose file it is.

    By nbgrader's folders, else the first folder that is no chapter's, else the file's name, else
    the name of what was given.
    """
    whole = (*above[-3:], *place)
    slugs = {chapter.slug for chapter in course.chapters()}
    inbound = next((part.split("+") for part in place if part.count("+") >= 2), None)
    stamp = None
    if SUBMITTED in whole[-4:-2]:  # student and file stand behind it, and perhaps the assignment
        student = whole[len(whole) - whole[::-1].index(SUBMITTED)]
    elif inbound:
        student, stamp = inbound[0], parse_time(inbound[2])
    else:
        folders = [part for part in place[:-1] if part not in slugs]
        student, stamp = _by_name(folders[0]) if folders else _by_file(place[-1])
    folders_of = tuple(part for part in whole[:-1] if part in slugs)
    name = safe_name(student or above[-1])
    when, stamped = (loose.when, loose.stamped) if stamp is None else (stamp, True)
    return Found(name, loose.path, loose.inner, folders_of, when, stamped, loose.problem)


_BLACKBOARD = re.compile(r".+?_([^_]+)_attempt_(\d{4}-\d\d-\d\d-\d\d-\d\d-\d\d)")
_CANVAS = re.compile(r"([^_]+)_(?:LATE_)?(\d+)_\d{2,}_.")
_MOODLE = re.compile(r"(.+?_\d+)_assignsubmission_\w*")
"""What learning management systems call files; Moodle calls folders so, or files."""


def _by_name(folder: str) -> tuple[str, float | None]:
    """The student of a folder; Moodle's are called Name_1234_assignsubmission_file_."""
    moodle = _MOODLE.fullmatch(folder)
    return (moodle[1] if moodle else folder), None


def _by_file(name: str) -> tuple[str, float | None]:
    """The student that a file's name speaks of, "" if none, and the time that it gives."""
    stem = re.sub(r"(?i)\.ipynb.*$|(\.tar)?\.[^.]*$", "", name)
    if blackboard := _BLACKBOARD.match(stem):
        return blackboard[1], parse_time(blackboard[2])
    if moodle := _MOODLE.match(stem):
        return moodle[1], None
    if canvas := _CANVAS.match(stem):
        return f"{canvas[1]}_{canvas[2]}", None
    stem = re.sub(r"(\s*\(\d+\)|-Copy\d+)+$", "", stem)
    for chapter in course.chapters():
        stem = re.sub(rf"(?i)(^|[-_. ]+){re.escape(chapter.slug)}([-_. ]+|$)", "", stem)
    return stem.strip("-_. "), None


def safe_name(text: str) -> str:
    """The name as a file's name, on every system and in a spreadsheet: no path, no formula."""
    text = unicodedata.normalize("NFC", text)
    text = "".join(" " if unicodedata.category(c)[0] in "CZ" else c for c in text)
    text = re.sub(r"\s+", " ", re.sub(r'[/\\:*?"<>|]', "_", text)).strip(" .").lstrip("=+-@ .")
    if len(text.encode()) > 100:
        digest = hashlib.sha256(text.encode()).hexdigest()
        text = f"{text.encode()[:90].decode(errors='ignore')}~{digest[:6]}"
    return text or "unnamed"


def _shown(name: str) -> str:
    """A name that a learner chose, in a message."""
    return "".join(c if c.isprintable() else "�" for c in name)[:80]
