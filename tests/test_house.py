"""The project's files agree with each other, and name nothing of the machine they come from."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from rattler import MatchSpec

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
NOXFILE = (ROOT / "noxfile.py").read_text()
CONDA = yaml.safe_load((ROOT / "environment.yml").read_text())
LOCK = (ROOT / "requirements.lock").read_text()
KAULDRON_LOCK = (ROOT / "requirements-kauldron.lock").read_text()
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]


def test_every_file_claims_the_same_pythons() -> None:
    prefix = "Programming Language :: Python :: 3."
    classifiers = PROJECT["project"]["classifiers"]
    assert [c.split(" :: ")[-1] for c in classifiers if c.startswith(prefix)] == PYTHONS

    assignment = re.search(r"^PYTHONS = (.*)$", NOXFILE, re.MULTILINE)
    assert assignment
    assert ast.literal_eval(assignment[1]) == PYTHONS

    header = re.search(r'^# requires-python = "(.*)"$', NOXFILE, re.MULTILINE)
    assert header
    (conda,) = (d for d in CONDA["dependencies"] if isinstance(d, str) and d.startswith("python"))
    around = ["3.10", *PYTHONS, "3.15"]
    for source in (header[1], conda.removeprefix("python")):
        assert [v for v in around if v in SpecifierSet(source)] == PYTHONS, source
    # The package sets no upper bound: a resolver would answer one with an older release.
    assert PROJECT["project"]["requires-python"] == f">={PYTHONS[0]}"
    assert PROJECT["tool"]["ruff"]["target-version"] == "py" + PYTHONS[0].replace(".", "")


# ------------------------------------------------------------------------------------ the lock


@pytest.mark.parametrize("lock", [LOCK, KAULDRON_LOCK], ids=["plain", "kauldron"])
def test_the_lock_names_no_index_and_no_local_file(lock: str) -> None:
    assert not re.findall(r"://|file:|^\s*-|^\S+ @ ", lock, re.MULTILINE)
    assert len(lock.splitlines()) > 100


def test_kauldron_changes_no_version_that_everyone_else_has() -> None:
    plain, kauldron = set(LOCK.splitlines()), set(KAULDRON_LOCK.splitlines())
    assert {line.partition(" ;")[0] for line in plain} <= {
        line.partition(" ;")[0] for line in kauldron
    }
    assert any(line.startswith("kauldron==") for line in kauldron - plain)


@pytest.mark.parametrize("python", PYTHONS)
def test_the_lock_covers_every_dependency_on(python: str) -> None:
    environment = default_environment() | {
        "python_version": python,
        "python_full_version": f"{python}.0",
    }
    pinned: dict[str, str] = {}
    for line in LOCK.splitlines():
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate(environment):
            name = canonicalize_name(requirement.name)
            assert name not in pinned, f"two versions of {name} on Python {python}"
            pinned[name] = str(requirement.specifier).removeprefix("==")
    for text in PROJECT["project"]["dependencies"] + PROJECT["dependency-groups"]["dev"]:
        wanted = Requirement(text)
        version = pinned.get(canonicalize_name(wanted.name))
        assert version is not None, f"{wanted.name} is not in the lock: uv run noxfile.py -s lock"
        assert wanted.specifier.contains(version, prereleases=True), f"{text}, locked: {version}"


def test_the_lock_covers_every_import_of_the_packages() -> None:
    """Also of a module that the code can do without: a sandbox must not be weaker by accident."""
    imported = set()
    for path in [*(ROOT / "helpers").rglob("*.py"), *(ROOT / "autograder").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module.partition(".")[0])
    theirs = imported - sys.stdlib_module_names - {"helpers", "autograder", "kauldron"}
    assert "\nkauldron==" in KAULDRON_LOCK  # an extra: chapter 08 says so where it is missing
    locked = {canonicalize_name(Requirement(line).name) for line in LOCK.splitlines()}
    providers = packages_distributions()
    for module in theirs:
        names = {canonicalize_name(name) for name in providers.get(module, [])}
        assert names & locked, f"no package of the lock provides {module!r}"
    assert "jax" in theirs


def test_the_lock_has_another_jax_for_each_python_we_run() -> None:
    """So that running the chapters on 3.11, 3.12 and 3.13 tries JAX 0.10, 0.11 and 0.12."""
    versions = re.findall(r"^jax==(\d+\.\d+)", LOCK, re.MULTILINE)
    assert versions == ["0.10", "0.11", "0.12"]


# ------------------------------------------------------------------------------ environment.yml


def test_conda_can_parse_environment_yml() -> None:
    assert set(CONDA) == {"name", "channels", "dependencies"}
    assert CONDA["channels"] == ["conda-forge"]
    specs = [d for d in CONDA["dependencies"] if isinstance(d, str)]
    names = [MatchSpec(spec, strict=True).name for spec in specs]
    assert [name.normalized for name in names if name] == ["python", "pip"]


@pytest.mark.parametrize("python", [PYTHONS[0], PYTHONS[-1]])
def test_the_pip_section_of_environment_yml_resolves_on(python: str) -> None:
    (section,) = (d["pip"] for d in CONDA["dependencies"] if isinstance(d, dict))
    resolved = subprocess.run(
        ["uv", "pip", "compile", "--quiet", "--python-version", python, "-"],
        input="\n".join(section),
        env=os.environ | {"UV_PYTHON_DOWNLOADS": "never"},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert resolved.returncode == 0, resolved.stderr
    for name in ("jax", "nbgrader", "jupyterlab", "typer"):
        assert re.search(rf"^{name}==", resolved.stdout, re.MULTILINE), name


# ----------------------------------------------------------------------------------- noxfile.py


def run_noxfile(code: str, **env: str) -> str:
    """What `code` prints after the noxfile was loaded in a fresh process."""
    load = "import os, runpy; noxfile = runpy.run_path('noxfile.py')\n"
    done = subprocess.run(
        [sys.executable, "-c", load + code],
        cwd=ROOT,
        env=os.environ | {"UV_PYTHON_DOWNLOADS": "never"} | env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.skipif(os.name == "nt", reason="pyenv's shims are shell scripts")
def test_the_noxfile_selects_every_python_that_pyenv_has(tmp_path: Path) -> None:
    """pyenv's python3.13 fails unless 3.13 is selected; the one in use stays first."""
    pyenv = tmp_path / "pyenv"
    pyenv.write_text(
        "#!/bin/sh\n"
        'case "$1" in\n'
        "  version-name) echo 3.11.7 ;;\n"
        "  versions) printf '2.7.18\\n3.11.7\\n3.12.1\\n3.13.0\\n' ;;\n"
        "esac\n"
    )
    pyenv.chmod(0o755)
    selected = run_noxfile(
        "print(os.environ['PYENV_VERSION'])", PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    )
    assert selected == "3.11.7:3.13.0:3.12.1"


def test_the_noxfile_finds_the_python_that_runs_it_and_every_one_of_pyenv() -> None:
    found = run_noxfile("""
import subprocess
for python in noxfile["PYTHONS"]:
    find = ["uv", "python", "find", python]
    if subprocess.run(find, capture_output=True).returncode == 0:
        print(python)
""")
    installed = {f"{sys.version_info.major}.{sys.version_info.minor}"}
    if shutil.which("pyenv"):
        listed = subprocess.run(["pyenv", "versions", "--bare"], capture_output=True, text=True)
        installed |= {name.rpartition(".")[0] for name in listed.stdout.split()}
    assert installed & set(PYTHONS) <= set(found.split())


def test_every_session_of_the_readme_exists() -> None:
    sessions = set(re.findall(r"^def ([a-z]+)\(session", NOXFILE, re.MULTILINE))
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        named = set(re.findall(r"(?:noxfile\.py|nox|`) ?-s ([a-z]+)", page.read_text()))
        assert named <= sessions, f"{page.name} names {sorted(named - sessions)}"


# ------------------------------------------------------------------------------- everything else


def our_files() -> list[Path]:
    """Files that are committed or would be by `git add --all`."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [path for path in paths if path.is_file()]


def test_no_file_names_a_path_of_one_machine() -> None:
    homes = r"/(?:home|Users|root)/\w+/\w+"
    shared = {Path("/"), Path("/tmp"), Path(tempfile.gettempdir())}
    here = {str(path) + os.sep for path in {ROOT, ROOT.parent, Path.home()} - shared}
    pattern = re.compile(rf"(?<![\w.*-])(?:{'|'.join([homes, *map(re.escape, sorted(here))])})")
    found = []
    for path in our_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{path.relative_to(ROOT)}: {match[0]}" for match in pattern.finditer(text)]
    assert not found


def test_no_file_is_large() -> None:
    large = [str(path) for path in our_files() if path.stat().st_size > 1_500_000]
    assert not large


def test_pre_commit_runs_what_ci_runs_and_downloads_nothing() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    assert [repository["repo"] for repository in config["repos"]] == ["local"]
    hooks = {hook["id"]: hook for hook in config["repos"][0]["hooks"]}
    assert hooks["lint"]["entry"] == "uv run noxfile.py -s lint"
    last = (ROOT / ".ci" / "run").read_text().rstrip().splitlines()[-1]
    assert hooks["tests"]["entry"] == last
