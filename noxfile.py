# /// script
# requires-python = ">=3.11,<3.15"
# dependencies = ["nox>=2026.4", "uv>=0.8"]
# ///
"""The project's commands. `uv run noxfile.py -s SESSION` needs only uv; `nox -s SESSION` works too.

All sessions share one environment, `.venv`, which the first of them makes from `requirements.lock`;
the chapters run on each other Python in an environment in `.nox`. Delete either to start afresh.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import nox

ROOT = Path(__file__).parent
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
THIS_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
LOCK, KAULDRON_LOCK = "requirements.lock", "requirements-kauldron.lock"
KAULDRON = "08_kauldron_tour"
VENV = ".venv"
SAMPLE_CLASS = "tests/sample_class/submitted"
MEASURED = "build/measured"  # the book's page of measurements is made of what is here

nox.needs_version = ">=2026.4"
nox.options.default_venv_backend = "none"  # _environment() makes the environments: see there
nox.options.sessions = ["tests"]

SETTINGS = {
    # A missing Python is skipped, not downloaded.
    "UV_PYTHON_DOWNLOADS": "never",
    # Without bytecode the first `import jax` takes 20 s; some machines forbid Python to write it.
    "UV_COMPILE_BYTECODE": "1",
    "PYTHONDONTWRITEBYTECODE": None,
    # Quieter kernels: no warning about frozen modules, none about Jupyter's folders.
    "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    "JUPYTER_PLATFORM_DIRS": "1",
}
# Tests run the same everywhere; whoever has a GPU and means it sets JAX_PLATFORMS.
CPU = {"JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS", "cpu")}


def _select_all_of_pyenv() -> None:
    """Let pyenv's shims find every Python it has: `python3.13` fails unless 3.13 is selected."""
    if not shutil.which("pyenv"):
        return

    def pyenv(*args: str) -> list[str]:
        return subprocess.run(["pyenv", *args], capture_output=True, text=True).stdout.split()

    selected = [name for line in pyenv("version-name") for name in line.split(":")]
    installed = [name for name in pyenv("versions", "--bare") if re.fullmatch(r"3\.[\w.-]+", name)]
    os.environ["PYENV_VERSION"] = ":".join(dict.fromkeys(selected + installed[::-1]))


_select_all_of_pyenv()


class Environment:
    """A virtual environment with the lock and the project in it; sessions run commands there."""

    def __init__(self, session: nox.Session, folder: str) -> None:
        self.session, self.folder = session, folder
        self.bin = f"{folder}/{'Scripts' if os.name == 'nt' else 'bin'}"
        self.stamp = ROOT / folder / "practical-jax.stamp"  # what was installed last
        self.env = SETTINGS | {"VIRTUAL_ENV": str(ROOT / folder)}
        if folder != VENV:  # what few chapters import is compiled sooner than everything
            self.env["UV_COMPILE_BYTECODE"] = None

    @property
    def python(self) -> str | None:
        """Its Python's version, as "3.12"; None where there is no environment yet."""
        config = ROOT / self.folder / "pyvenv.cfg"
        if not config.exists():
            return None
        pairs = dict(
            line.split(" = ", 1) for line in config.read_text().splitlines() if " = " in line
        )
        return ".".join((pairs.get("version_info") or pairs["version"]).split(".")[:2])

    @property
    def has_kauldron(self) -> bool:
        """Whether `-s kauldron` was run for it."""
        return bool(self._installed("kauldron"))

    @property
    def jax(self) -> str:
        """The version of JAX in it."""
        (found,) = self._installed("jax-*.dist-info")
        return found.name.removeprefix("jax-").removesuffix(".dist-info")

    def make(self, python: str) -> None:
        """Make the environment where there is none, and install whatever changed since."""
        if self.python is None:
            find = ["uv", "python", "find", "--no-python-downloads", python]
            if subprocess.run(find, capture_output=True).returncode != 0:
                self.session.skip(f"Python {python} is not installed")
            self._uv("venv", "--python", python, self.folder)
        pins = KAULDRON_LOCK if self.has_kauldron else LOCK
        wanted = (ROOT / pins).read_text() + (ROOT / "pyproject.toml").read_text()
        if not self.stamp.exists() or self.stamp.read_text() != wanted:
            self.session.log(f"Installing {self.folder}: the first time takes about a minute")
            self._uv("pip", "install", "--requirements", pins)
            self._uv("pip", "install", "--no-deps", "--editable", ".")
            self.stamp.write_text(wanted)

    def add(self, *what: str) -> None:
        """Install more."""
        self._uv("pip", "install", *what)

    def run(self, command: str, *args: str, success_codes: Sequence[int] = (0,)) -> None:
        """Run one of the environment's programs in the project's folder."""
        path = os.pathsep.join([str(ROOT / self.bin), os.environ["PATH"]])
        env = self.env | {"PATH": path}
        self.session.run(f"{self.bin}/{command}", *args, env=env, success_codes=success_codes)

    def _installed(self, name: str) -> list[Path]:
        """What is called so in its `site-packages`."""
        places = "lib/*/site-packages", "Lib/site-packages"
        return [path for at in places for path in (ROOT / self.folder).glob(f"{at}/{name}")]

    def _uv(self, *args: str) -> None:
        self.session.run("uv", *args, "--quiet", env=self.env)


def _environment(session: nox.Session, python: str | None = None) -> Environment:
    """The environment of one Python (by default the project's), ready for use.

    nox would make one for each session, 1 GB and half a minute each; these are shared. The session
    is skipped where that Python is not installed, in CI too.
    """
    environment = Environment(session, VENV)
    if python not in (None, environment.python or THIS_PYTHON):
        environment = Environment(session, f".nox/python{python}")
    environment.make(python or sys.executable)
    return environment


def _lint(environment: Environment) -> None:
    environment.run("ruff", "check")
    environment.run("ruff", "format", "--check")
    environment.run("mypy")


@nox.session
def grade(session: nox.Session) -> None:
    """Grade the sample class, or what stands after `--`: `-s grade -- PATH --out DIR`."""
    environment = _environment(session)
    args = session.posargs or [SAMPLE_CLASS, "--out", "build/class"]
    # 1: every submission has its marks or its reason, and some of them need a person
    environment.run("autograder", "grade", *args, success_codes=[0, 1])
    if not session.posargs:
        session.log(
            "Marks: build/class/marks.csv. A page for each learner: build/class/feedback/. "
            "nbgrader's gradebook: build/class/gradebook.db"
        )


@nox.session
def serve(session: nox.Session) -> None:
    """Open formgrader on the sample class, graded first, or on another: `-s serve -- OUT`."""
    _environment(session).run("autograder", "serve", *session.posargs)


@nox.session
def lab(session: nox.Session) -> None:
    """Open the chapters in JupyterLab."""
    _environment(session).run("jupyter", "lab", *(session.posargs or ["chapters"]))


@nox.session
def kauldron(session: nox.Session) -> None:
    """Add Kauldron and taktiny (3 GB): for chapter 08, and a table in 09. `-- 3.13`: there."""
    environment = _environment(session, *session.posargs)
    if not environment.has_kauldron:
        session.log("Adding Kauldron, and TensorFlow with it: two minutes")
        # what both locks name has the same versions
        environment.add("--requirements", KAULDRON_LOCK)


@nox.session
def build(session: nox.Session) -> None:
    """Build and execute the chapters' notebooks from their sources: all, or `-- CHAPTER`."""
    _environment(session).run("autograder", "build", *session.posargs)


@nox.session
def banks(session: nox.Session) -> None:
    """Run every answer of the banks on ten seeds, and right ones rewritten: `-- CHAPTER`."""
    environment = _environment(session)
    environment.env |= CPU
    environment.run("autograder", "check", *session.posargs)


@nox.session
def strength(session: nox.Session) -> None:
    """Count the changes to taught code and reference answers that go unnoticed; `-- CHAPTER`."""
    environment = _environment(session)
    environment.env |= CPU
    kept = [] if session.posargs else ["--json", f"{MEASURED}/strength.json"]
    environment.run("autograder", "strength", *kept, *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Measure grading beside nbgrader, Otter and the bare answers; `-- scale`: large classes."""
    environment = _environment(session)
    if session.posargs[:1] == ["scale"]:
        environment.run("python", "benchmarks/scale.py", *session.posargs[1:])
        return
    otter = Environment(session, ".nox/otter")
    otter.make(environment.python or THIS_PYTHON)
    otter.add("otter-grader")
    environment.run("python", "benchmarks/bench.py", *session.posargs)


@nox.session
def book(session: nox.Session) -> None:
    """Build a website of chapters, guides and API reference: build/book/index.html."""
    environment = _environment(session)
    environment.env |= CPU
    options = ["-c", "book", "-d", "build/doctrees", "--jobs", "auto"]
    options += ["--fail-on-warning", "--keep-going", "--quiet"]
    environment.run("sphinx-build", *options, *session.posargs, ".", "build/book")
    session.log("Look at it: python -m http.server --directory build/book")


@nox.session
def lint(session: nox.Session) -> None:
    """Format, lint and types; `-- --fix` mends what can be mended."""
    environment = _environment(session)
    if "--fix" in session.posargs:
        environment.run("ruff", "check", "--fix", success_codes=[0, 1])
        environment.run("ruff", "format")
    _lint(environment)


@nox.session
def tests(session: nox.Session) -> None:
    """Run every check, as CI does. With arguments, `-- -k wire`, only pytest with those.

    Under COURSE_README_TEST=1 only lint and tests/test_house.py run: the test of the README's
    commands calls this session in a fresh clone, and must not run itself again.
    """
    environment = _environment(session)
    environment.env |= CPU
    if session.posargs:
        environment.run("pytest", *session.posargs)
        return
    _lint(environment)
    if os.environ.get("COURSE_README_TEST"):
        session.log("COURSE_README_TEST is set: only tests/test_house.py")
        environment.run("pytest", "tests/test_house.py")
        return
    environment.run("autograder", "build", "--check")
    # a file's tests share what they set up; long ones come early in the alphabet
    environment.run("pytest", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")
    session.notify("chapters")


@nox.session
def chapters(session: nox.Session) -> None:
    """Run each chapter on every installed Python and compare all outputs."""
    for version in PYTHONS:
        session.notify(f"chapters-{version}")


def _chapters_on(python: str) -> None:
    @nox.session(name=f"chapters-{python}")
    def run(session: nox.Session) -> None:
        environment = _environment(session, python)
        environment.env |= CPU
        options = ["--nbval-current-env", "--nbval-cell-timeout=300"]
        options += ["--nbval-sanitize-with=tests/nbval_sanitize.cfg"]
        options += ["-n", "2", "--dist", "loadscope"]  # loadscope: one kernel a notebook
        whole = session.posargs or sorted(map(str, Path("chapters").glob("*.ipynb")))
        # without the library its chapter explains itself and skips the rest: nothing to compare
        skipped = [] if environment.has_kauldron else [path for path in whole if KAULDRON in path]
        if compared := [path for path in whole if path not in skipped]:
            kept = f"--junitxml={MEASURED}/chapters-{python}.xml"
            named = f"junit_suite_name=Python {python}, JAX {environment.jax}"
            environment.run("pytest", "--nbval", *options, kept, "-o", named, *compared)
        if skipped:
            environment.run("pytest", "--nbval-lax", *options, *skipped)

    run.__doc__ = f"Run each chapter on Python {python} and compare all outputs."


for _python in PYTHONS:
    _chapters_on(_python)


@nox.session
def lock(session: nox.Session) -> None:
    """Write both locks anew from pyproject.toml; `-- --upgrade` takes the newest."""
    universal = ["--universal", "--python-version", PYTHONS[0], "--group", "dev"]
    plain = ["--no-annotate", "--no-header", "--no-emit-index-url", "--no-emit-find-links"]
    options = [*universal, *plain, "--quiet", *session.posargs, "pyproject.toml"]

    def write(lock: str, *more: str) -> None:
        session.run("uv", "pip", "compile", "--output-file", lock, *more, *options, env=SETTINGS)

    write(LOCK)
    write(KAULDRON_LOCK, "--extra", "kauldron", "--constraint", LOCK)


if __name__ == "__main__":
    nox.main()
