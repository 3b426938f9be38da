"""How much memory is available, by the system and by the control groups that a process is in."""

import mmap
from pathlib import Path

import psutil
import pytest

from collector.execution import memory

GIB = 1 << 30
MEMINFO = "MemTotal: 16777216 kB\nMemAvailable:   8388608 kB\n"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file system in which eight GiB are available, and no control group has a limit."""
    monkeypatch.setattr(memory, "FILE_SYSTEMS", tmp_path)
    write(tmp_path / "proc/meminfo", MEMINFO)
    write(tmp_path / "proc/self/cgroup", "0::/user.slice/session\n")
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def write_group(folder: Path, most: str, used: int, cached: int = 0) -> None:
    """A control group of version 2."""
    write(folder / "memory.max", f"{most}\n")
    write(folder / "memory.current", f"{used}\n")
    write(folder / "memory.stat", f"anon {used - cached}\ninactive_file {cached}\n")


def test_it_is_what_this_system_says() -> None:
    found = memory.available_bytes()
    assert found is not None
    assert found <= 1.1 * psutil.virtual_memory().available


def test_without_limits_it_is_the_systems(root: Path) -> None:
    write_group(root / "sys/fs/cgroup/user.slice", "max", 5 * GIB)
    assert memory.available_bytes() == 8 * GIB


@pytest.mark.parametrize("group", ["user.slice/session", "user.slice", "."])
def test_a_group_leaves_less_and_pages_of_files_can_be_had(root: Path, group: str) -> None:
    write_group(root / "sys/fs/cgroup" / group, str(4 * GIB), 3 * GIB, cached=GIB)
    assert memory.available_bytes() == 2 * GIB


def test_a_group_that_is_over_its_limit_leaves_nothing(root: Path) -> None:
    write_group(root / "sys/fs/cgroup/user.slice/session", str(GIB), 2 * GIB)
    assert memory.available_bytes() == 0


def test_a_group_of_version_1(root: Path) -> None:
    write(root / "proc/self/cgroup", "5:cpu,cpuacct:/job\n4:memory:/job\n0::/job\n")
    folder = root / "sys/fs/cgroup/memory/job"
    write(folder / "memory.limit_in_bytes", f"{2 * GIB}\n")
    write(folder / "memory.usage_in_bytes", f"{GIB}\n")
    write(folder / "memory.stat", f"cache 7\ntotal_inactive_file {GIB // 2}\n")
    assert memory.available_bytes() == GIB + GIB // 2


def test_a_system_that_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "FILE_SYSTEMS", tmp_path / "nowhere")
    assert memory.available_bytes() is None


@pytest.mark.parametrize(("held", "calls"), [(memory.MOST_KEPT_BYTES, 0), (memory.MOST_KEPT_BYTES + mmap.PAGESIZE, 1)])
def test_between_stages_memory_is_kept_until_it_is_much(
    root: Path, monkeypatch: pytest.MonkeyPatch, held: int, calls: int
) -> None:
    of_files = 1_000
    write(root / "proc/self/statm", f"90000000 {held // mmap.PAGESIZE + of_files} {of_files} 7 0 9 0\n")
    given_back: list[None] = []
    monkeypatch.setattr(memory, "give_back", lambda: given_back.append(None))
    memory.give_back_if_much()
    assert len(given_back) == calls


def test_a_system_that_does_not_say_what_is_held_gets_it_back(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not (root / "proc/self/statm").exists()
    given_back: list[None] = []
    monkeypatch.setattr(memory, "give_back", lambda: given_back.append(None))
    memory.give_back_if_much()
    assert given_back == [None]
