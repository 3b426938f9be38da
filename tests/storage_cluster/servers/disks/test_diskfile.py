"""Object files: what is committed is found, what is not leaves nothing, the newest version decides."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_cluster.servers.disks import diskfile
from storage_cluster.servers.disks.diskfile import DamagedFileError, ObjectDir

T1, T2, T3 = "1700000001.00000", "1700000002.00000", "1700000003.00000"


@pytest.fixture
def stored(tmp_path: Path) -> ObjectDir:
    (tmp_path / "tmp").mkdir()
    return ObjectDir(tmp_path, tmp_path / "objects" / "7" / "abc" / "hash")


def put(stored: ObjectDir, timestamp: str, body: bytes, metadata: dict[str, str] | None = None) -> None:
    new = stored.new_file()
    new.write(body)
    stored.commit_data(new, timestamp, "text/plain", metadata or {})
    new.close()


def files(stored: ObjectDir) -> list[str]:
    return sorted(os.listdir(stored.directory)) if stored.directory.exists() else []


@pytest.mark.parametrize("body", [b"", b"x", b"twintap1" * 9, bytes(300_000)])
def test_what_is_committed_is_read(stored: ObjectDir, body: bytes) -> None:
    put(stored, T1, body, {"X-Object-Meta-Colour": "blé"})
    info = stored.read_info()
    assert info is not None
    assert info.data_path.read_bytes()[: info.size] == body
    assert info.size == len(body)
    assert (info.content_type, info.timestamp, info.metadata) == ("text/plain", T1, {"X-Object-Meta-Colour": "blé"})


def test_without_commit_nothing_is_left(stored: ObjectDir, tmp_path: Path) -> None:
    new = stored.new_file()
    new.write(bytes(100_000))
    assert len(os.listdir(tmp_path / "tmp")) == 1
    new.close()
    assert os.listdir(tmp_path / "tmp") == []
    assert stored.read_info() is None


@pytest.mark.parametrize("in_order", [True, False])
def test_commit_syncs_the_file_before_its_name_and_the_directory_after(
    stored: ObjectDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_order: bool
) -> None:
    monkeypatch.setattr(diskfile, "_journals_in_order", lambda _: in_order)
    steps: list[str] = []
    real_sync, real_rename = os.fsync, os.rename
    monkeypatch.setattr(os, "rename", lambda *a: (real_rename(*a), steps.append("rename")))

    def sync(descriptor: int) -> None:
        steps.append("sync " + ("directory" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "file"))
        real_sync(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    put(stored, T1, b"first")
    put(stored, T2, b"second")
    assert steps[-3:] == ["sync file", "rename", "sync directory"]
    assert steps[:2] == ["sync file", "rename"]
    made_in = 0 if in_order else len(stored.directory.relative_to(tmp_path).parts)
    assert steps.count("sync directory") == 2 + made_in  # the object's own, twice


def test_the_newest_wins_and_the_old_goes(stored: ObjectDir) -> None:
    put(stored, T1, b"old")
    put(stored, T2, b"new")
    assert files(stored) == [f"{T2}.data"]
    stored.write_meta(T3, "", {"X-Object-Meta-A": "1"})
    info = stored.read_info()
    assert info is not None
    assert (info.data_timestamp, info.timestamp, info.content_type) == (T2, T3, "text/plain")
    assert info.metadata == {"X-Object-Meta-A": "1"}


def test_a_late_old_version_changes_nothing(stored: ObjectDir) -> None:
    put(stored, T2, b"new")
    put(stored, T1, b"late")
    info = stored.read_info()
    assert info is not None
    assert info.timestamp == T2
    assert files(stored) == [f"{T2}.data"]


def test_deletion_leaves_a_tombstone_that_a_newer_put_removes(stored: ObjectDir) -> None:
    put(stored, T1, b"x")
    stored.write_meta(T2, "image/png", {})
    stored.write_tombstone(T2)
    assert stored.read_info() is None
    put(stored, T3, b"again")
    assert files(stored) == [f"{T3}.data"]


@given(cut=st.integers(0, 200))
def test_a_truncated_file_is_detected(cut: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("device")
    (root / "tmp").mkdir()
    stored = ObjectDir(root, root / "objects" / "7" / "abc" / "hash")
    put(stored, T1, b"body")
    path = stored.directory / f"{T1}.data"
    whole = path.read_bytes()
    if cut >= len(whole):
        return
    path.write_bytes(whole[:cut])
    with pytest.raises(DamagedFileError):
        stored.read_info()


@pytest.mark.parametrize("suffix", [".data", ".meta"])
def test_every_flipped_bit_is_found(stored: ObjectDir, suffix: str) -> None:
    put(stored, T1, b"body", {"X-Object-Meta-A": "1"})
    stored.write_meta(T2, "image/png", {"X-Object-Meta-A": "2"})
    stored.check()
    (path,) = stored.directory.glob(f"*{suffix}")
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << at % 8)]) + whole[at + 1 :])
        with pytest.raises(DamagedFileError):
            stored.check()


def test_a_copy_of_another_replicas_file_is_checked_before_it_counts(stored: ObjectDir, tmp_path: Path) -> None:
    put(stored, T1, b"body")
    whole = (stored.directory / f"{T1}.data").read_bytes()
    other = ObjectDir(tmp_path, tmp_path / "objects" / "7" / "abc" / "other")
    for content, sound in ((b"B" + whole[1:], False), (whole, True)):
        new = other.new_file()
        new.write(content)
        if sound:
            other.commit_copy(new, f"{T1}.data")
        else:
            with pytest.raises(DamagedFileError):
                other.commit_copy(new, f"{T1}.data")
        new.close()
    assert files(other) == [f"{T1}.data"]
    assert (other.directory / f"{T1}.data").read_bytes() == whole
    assert os.listdir(tmp_path / "tmp") == []


def test_what_is_quarantined_is_out_of_the_way_and_kept(stored: ObjectDir, tmp_path: Path) -> None:
    put(stored, T1, b"body")
    stored.quarantine()
    assert stored.read_info() is None
    assert [path.name for path in tmp_path.glob("quarantined/objects/hash-*/*")] == [f"{T1}.data"]
    stored.quarantine()  # once more: nothing there
    put(stored, T2, b"again")
    assert files(stored) == [f"{T2}.data"]


def test_a_journal_is_believed_in_only_where_the_kernel_shows_one() -> None:
    assert not diskfile._journals_in_order("/proc")
    for mounted in Path("/proc/mounts").read_text("utf-8").splitlines():
        source, directory, kind, *_ = mounted.split()
        if kind == "xfs" and source.startswith("/dev/") and os.path.isdir(directory):
            assert diskfile._journals_in_order(directory)
        if kind in ("tmpfs", "overlay", "ext2") and os.path.isdir(directory):
            assert not diskfile._journals_in_order(directory)
