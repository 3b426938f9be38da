"""Fragments' files: which of them count, which one a reader gets, and when one is durable."""

import os
from pathlib import Path

import pytest

from storage_cluster.erasure import Code
from storage_cluster.policies import ERASURE_CODING, Policies, Policy
from storage_cluster.servers.disks import diskfile, fragments
from storage_cluster.servers.disks.diskfile import DamagedFileError, ObjectDir
from storage_cluster.servers.disks.fragments import (
    Archive,
    FragmentDir,
    Preference,
    current_files,
    held_as,
    is_undecided,
    object_at,
    parse_preferences,
    preferences_text,
    with_index,
)

T1, T2, T3 = "1700000001.00000", "1700000002.00000", "1700000003.00000"
CODE = Code(2, 1, 64)
BODY = bytes(range(100))


@pytest.fixture
def fragment_dir(tmp_path: Path) -> FragmentDir:
    (tmp_path / "tmp").mkdir()
    return FragmentDir(tmp_path, tmp_path / "objects-1" / "7" / "abc" / "hash", CODE)


def archive_of(index: int) -> bytes:
    return b"".join(CODE.encode(BODY[start : start + 64])[index] for start in (0, 64))


def write(fragment_dir: FragmentDir, timestamp: str, index: int = 0, body: bytes | None = None) -> None:
    new = fragment_dir.new_file()
    new.write(archive_of(index) if body is None else body)
    metadata = {fragments.INDEX: str(index), fragments.SIZE: str(len(BODY)), fragments.ETAG: "whole"}
    fragment_dir.commit_data(new, timestamp, "text/plain", metadata)
    new.close()


def files(fragment_dir: FragmentDir) -> list[str]:
    return sorted(os.listdir(fragment_dir.directory)) if fragment_dir.directory.exists() else []


@pytest.mark.parametrize(
    ("names", "kept"),
    [
        ({f"{T1}#0.data"}, {f"{T1}#0.data"}),
        ({f"{T1}#0#d.data", f"{T2}#0.data"}, {f"{T1}#0#d.data", f"{T2}#0.data"}),
        ({f"{T1}#0.data", f"{T2}#0#d.data"}, {f"{T2}#0#d.data"}),
        ({f"{T1}#0#d.data", f"{T2}#0#d.data", f"{T2}#2#d.data"}, {f"{T2}#0#d.data", f"{T2}#2#d.data"}),
        ({f"{T1}#0.data", f"{T1}#0#d.data"}, {f"{T1}#0#d.data"}),
        ({f"{T1}#0#d.data", f"{T1}#1.data"}, {f"{T1}#0#d.data", f"{T1}#1.data"}),
        ({f"{T1}#0#d.data", f"{T2}.ts"}, {f"{T2}.ts"}),
        ({f"{T1}.ts", f"{T2}#0.data"}, {f"{T1}.ts", f"{T2}#0.data"}),
        ({f"{T1}.ts", f"{T2}#0#d.data"}, {f"{T2}#0#d.data"}),
        ({f"{T1}#0#d.data", f"{T2}.meta", f"{T3}.meta"}, {f"{T1}#0#d.data", f"{T3}.meta"}),
        ({f"{T1}.meta", f"{T2}#0#d.data"}, {f"{T2}#0#d.data"}),
        (set(), set()),
    ],
)
def test_files_that_count(names: set[str], kept: set[str]) -> None:
    assert current_files(names) == kept


def test_names_without_their_index_are_equal_where_versions_are() -> None:
    one, other = [f"{T1}#0#d.data", f"{T2}.meta"], [f"{T1}#2#d.data", f"{T2}.meta", f"{T3}#2.data"]
    assert held_as(one, 0) == held_as(other, 2) == {f"{T1}#d.data", f"{T2}.meta"}
    assert held_as(one, 2) == {f"{T2}.meta"}
    assert [with_index(name, 1) for name in (f"{T1}#d.data", f"{T2}.meta")] == [f"{T1}#1#d.data", f"{T2}.meta"]


@pytest.mark.parametrize("text", [f"{T1}.data", f"{T1}#x.data", f"{T1}#1#e.data", f"{T1}#1.ts", "#1.data"])
def test_other_names_are_no_archives(text: str) -> None:
    assert Archive.of(text) is None


def test_an_archive_is_the_newest_version_once_it_is_durable(fragment_dir: FragmentDir) -> None:
    write(fragment_dir, T1)
    fragment_dir.make_durable(T1, 0)
    write(fragment_dir, T2)
    assert files(fragment_dir) == [f"{T1}#0#d.data", f"{T2}#0.data"]
    info = fragment_dir.read_info()
    assert info is not None and info.data_timestamp == T1
    fragment_dir.make_durable(T2, 0)
    assert files(fragment_dir) == [f"{T2}#0#d.data"]
    info = fragment_dir.read_info()
    assert info is not None and (info.data_timestamp, info.metadata[fragments.ETAG]) == (T2, "whole")


def test_the_durable_name_is_synced(fragment_dir: FragmentDir, monkeypatch: pytest.MonkeyPatch) -> None:
    write(fragment_dir, T1)
    steps: list[str] = []
    rename = os.rename
    monkeypatch.setattr(os, "rename", lambda *names: (rename(*names), steps.append("rename")))
    monkeypatch.setattr(diskfile, "_sync_directory", steps.append)
    fragment_dir.make_durable(T1, 0)
    assert steps == ["rename", str(fragment_dir.directory)]


def test_who_makes_it_durable_second_has_nothing_to_do(fragment_dir: FragmentDir) -> None:
    write(fragment_dir, T1)
    for _ in range(2):
        fragment_dir.make_durable(T1, 0)
    fragment_dir.write_tombstone(T3)
    fragment_dir.make_durable(T2, 0)  # it was replaced meanwhile
    assert files(fragment_dir) == [f"{T3}.ts"]
    fragment_dir.quarantine()
    with pytest.raises(FileNotFoundError):
        fragment_dir.make_durable(T3, 0)


def test_metadata_of_a_later_post_is_read_with_it(fragment_dir: FragmentDir) -> None:
    write(fragment_dir, T1)
    fragment_dir.make_durable(T1, 0)
    fragment_dir.write_meta(T2, "text/html", {"X-Object-Meta-A": "1"})
    info = fragment_dir.read_info()
    assert info is not None and (info.timestamp, info.data_timestamp, info.content_type) == (T2, T1, "text/html")
    assert info.metadata["X-Object-Meta-A"] == "1" and info.metadata[fragments.INDEX] == "0"


@pytest.mark.parametrize(
    ("preferences", "wanted"),
    [
        (None, (T1, "2")),
        ([], (T1, "2")),
        ([Preference(T1, frozenset({2}))], (T1, "0")),
        ([Preference(T2)], (T2, "0")),
        ([Preference(T3), Preference(T1)], (T1, "2")),
        ([Preference(T1, frozenset({0, 2}))], (T2, "0")),
        ([Preference(T1, frozenset({0, 2})), Preference(T2, frozenset({0}))], None),
    ],
)
def test_a_reader_gets_what_it_prefers(
    fragment_dir: FragmentDir, preferences: list[Preference] | None, wanted: tuple[str, str] | None
) -> None:
    for index in (0, 2):
        write(fragment_dir, T1, index)
    fragment_dir.make_durable(T1, 0)
    write(fragment_dir, T2)
    info = fragment_dir.read_info(preferences)
    assert (info and (info.data_timestamp, info.metadata[fragments.INDEX])) == wanted


def test_what_is_not_durable_is_only_for_who_asks_for_it(fragment_dir: FragmentDir) -> None:
    write(fragment_dir, T1)
    assert fragment_dir.read_info() is None
    info = fragment_dir.read_info([])
    assert info is not None and info.data_timestamp == T1


def test_preferences_go_as_text() -> None:
    wanted = [Preference(T2, frozenset({0, 2})), Preference(T1)]
    assert (
        preferences_text(wanted)
        == f'[{{"timestamp": "{T2}", "exclude": [0, 2]}}, {{"timestamp": "{T1}", "exclude": []}}]'
    )
    assert parse_preferences(preferences_text(wanted)) == wanted
    for text in ("x", "[1]", "{}x", '[{"timestamp": "1"}]'):
        with pytest.raises(ValueError):
            parse_preferences(text)


def test_a_check_reads_every_fragment(fragment_dir: FragmentDir) -> None:
    write(fragment_dir, T1)
    assert fragment_dir.check() == CODE.archive_len(len(BODY))
    body = bytearray(archive_of(0))
    body[-1] ^= 1  # damaged before it was written: its own MD5 fits
    write(fragment_dir, T2, body=bytes(body))
    with pytest.raises(DamagedFileError):
        fragment_dir.check()


def test_an_archive_is_undecided_until_it_is_durable() -> None:
    assert is_undecided(f"{T1}#0.data", T2)
    assert not any(is_undecided(name, T2) for name in (f"{T1}#0#d.data", f"{T2}#0.data", f"{T1}.ts"))


def test_a_directory_says_what_its_objects_are() -> None:
    policies = Policies((Policy(), Policy("coded", 1, kind=ERASURE_CODING, data_fragments=2, parity_fragments=1)))
    kinds = {
        kind: type(object_at(Path("d"), Path("d") / kind / "7" / "abc" / "hash", policies))
        for kind in ("objects", "objects-1", "objects-2")
    }
    assert kinds == {"objects": ObjectDir, "objects-1": FragmentDir, "objects-2": ObjectDir}
