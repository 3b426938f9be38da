"""A folder with wheels of ours and the packages that they need, as a Debian package or a single file holds them."""

import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
OURS = ("twintap", "twintap-core")
PYTHON = "3.11"
"""Debian 12's; also what abi3 wheels are for, so those of an agent serve later ones, too."""
FOR_DEVELOPERS = ("tests", "include", "*.a", "*.h", "*.c", "*.cpp", "*.pyx", "*.pxd", "*.pyi")
"""What nothing opens when it runs: a third of some packages."""


def required_names(extras: Iterable[str]) -> set[str]:
    """The distributions of others that `twintap` with these extras needs here, and what they need."""
    waiting = [Requirement(f"twintap[{','.join(extras)}]")]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        wanted = waiting.pop()
        key = (canonicalize_name(wanted.name), frozenset(wanted.extras))
        if key in seen or key[0] == "twintap-core":
            continue
        seen.add(key)
        for text in distribution(wanted.name).requires or ():
            needed = Requirement(text)
            if needed.marker is None or any(needed.marker.evaluate({"extra": each}) for each in ("", *wanted.extras)):
                waiting.append(needed)
    return {name for name, _ in seen}.difference(OURS)


def requirement_lines(names: set[str]) -> str:
    """Their lines of requirements.txt, with the hashes. Raises: AssertionError if one is not pinned."""
    entries = (ROOT / "requirements.txt").read_text().replace("\\\n", "").splitlines()
    found = [entry for entry in entries if canonicalize_name(entry.partition("==")[0]) in names]
    assert len(found) == len(names), f"not pinned: {names - {canonicalize_name(e.partition('==')[0]) for e in found}}"
    return "\n".join(found) + "\n"


def install_vendored(folder: Path, extras: Sequence[str], wheels: Sequence[Path], only: Sequence[str]) -> None:
    """Fill a folder with these wheels of ours and what they need; of ours `only` these packages, or all."""
    listed = folder.with_suffix(".txt")
    listed.write_text(requirement_lines(required_names(extras)))
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "--no-compile"]
    target = ["--target", folder, "--only-binary", ":all:", "--python-version", PYTHON, "--upgrade"]
    subprocess.run([*pip, *target, "--require-hashes", "-r", listed], check=True)
    trim(folder)
    subprocess.run([*pip, *target, "--no-index", *wheels], check=True)
    shutil.rmtree(folder / "bin", ignore_errors=True)
    for info in folder.glob("*.dist-info"):
        (info / "direct_url.json").unlink(missing_ok=True)  # of the folder where this was built
    for package in ("collector", "viewer", "storage_cluster"):
        if only and package not in only:
            shutil.rmtree(folder / package)


def trim(folder: Path) -> None:
    """Remove what only those need who build or test these packages."""
    for pattern in FOR_DEVELOPERS:
        for path in sorted(folder.rglob(pattern)):
            if path.is_dir():
                shutil.rmtree(path)
            elif path.exists():
                path.unlink()
