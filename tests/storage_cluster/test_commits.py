"""Group commit: who waits is told when it is on the disk, together with others, and only of what went wrong for him."""

import asyncio
import errno
import os
import threading
from pathlib import Path

import pytest

from storage_cluster.servers import commits as module
from storage_cluster.servers.commits import THREADS, Committer
from storage_cluster.servers.diskfile import Commit, NewFile, ObjectDir, commit_all

AT = "1700000001.00000"


@pytest.fixture
def device(tmp_path: Path) -> Path:
    (tmp_path / "tmp").mkdir()
    return tmp_path


def written(device: Path, name: str) -> tuple[ObjectDir, NewFile, Commit]:
    """An object whose file waits to be committed."""
    stored = ObjectDir(device, device / "objects" / "7" / "abc" / name)
    new = stored.new_file()
    new.write(name.encode())
    return stored, new, stored.data_commit(new, AT, "text/plain", {})


def test_of_several_only_those_fail_that_something_went_wrong_for(
    device: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [written(device, name) for name in ("a", "b", "c", "d")]
    (device / "objects" / "7" / "abc").mkdir(parents=True)
    (device / "objects" / "7" / "abc" / "b").write_bytes(b"a file where a directory belongs")
    real_sync = os.fsync

    def sync(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith("/c"):
            raise OSError(errno.EIO, "no")
        real_sync(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    commit_all([commit for _, _, commit in parts])
    for _, new, _ in parts:
        new.close()
    failures = [commit.failure for _, _, commit in parts]
    assert [failure and failure.errno for failure in failures] == [None, errno.ENOTDIR, errno.EIO, None]
    assert [part[0].read_info() is not None for part in (parts[0], parts[3])] == [True, True]
    assert os.listdir(device / "tmp") == []


def test_those_that_wait_while_the_disk_is_busy_go_together(device: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    free = threading.Event()

    def slow(batch: list[Commit]) -> None:
        sizes.append(len(batch))
        free.wait()
        commit_all(batch)

    monkeypatch.setattr(module, "commit_all", slow)
    count = THREADS + 20
    parts = [written(device, str(number)) for number in range(count)]

    async def run() -> None:
        committer = Committer()
        waiting = []
        for _, _, commit in parts:
            waiting.append(asyncio.ensure_future(committer.commit(commit)))
            await asyncio.sleep(0)
        assert not any(one.done() for one in waiting)
        free.set()
        await asyncio.gather(*waiting)
        committer.close()

    asyncio.run(run())
    assert sorted(sizes) == [1] * THREADS + [20]
    for stored, new, _ in parts:
        assert stored.read_info() is not None
        new.close()


def test_a_failure_is_told_to_who_waits(device: Path) -> None:
    _, new, commit = written(device, "a")
    (device / "objects").write_bytes(b"a file where a directory belongs")

    async def run() -> None:
        committer = Committer()
        with pytest.raises(NotADirectoryError):
            await committer.commit(commit)
        committer.close()

    asyncio.run(run())
    new.close()
