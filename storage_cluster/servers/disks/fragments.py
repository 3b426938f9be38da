"""Fragments on disk: the files of an object whose policy is erasure coding (see `diskfile` for what a file holds).

`<timestamp>#<index>.data` is an archive of fragments (`erasure`) that was written, `<timestamp>#<index>#d.data` one
that is durable: its write was confirmed by enough others, and the file renamed. Only what is durable decides which
version is the newest. A device has one fragment of an object as a rule; a handoff, or a primary of an earlier ring,
may hold one of another index, or several.

Files that are kept: the archives of the newest durable version, those that are not durable and newer than it (their
write may be under way), the newest .meta if it is newer, or the newest .ts instead of all that is older.

A reader may prefer versions (`Preference`): it wants a fragment of this moment whose index is none of these.

Source: Swift, swift.obj.diskfile (`ECDiskFile`: names, durable archives, fragment preferences).
"""

import dataclasses
import json
import os
import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from storage_cluster.erasure import Code, code_of
from storage_cluster.policies import Policies, policy_index
from storage_cluster.servers.disks.diskfile import (
    DamagedFileError,
    NewFile,
    ObjectDir,
    ObjectInfo,
    Versions,
    check_file,
    newest_files,
    read_footer,
)

SYSMETA = "X-Object-Sysmeta-Ec-"
INDEX, ETAG, SIZE, SCHEME, SEGMENT = (
    SYSMETA + name for name in ("Frag-Index", "Etag", "Content-Length", "Scheme", "Segment-Size")
)
"""Metadata of an archive: its index; of the whole object the ETag, the length, the code, and what is coded at once."""
_DATA = re.compile(r"(\d+\.\d+)#(\d+)(#d)?\.data")


@dataclasses.dataclass(frozen=True, order=True)
class Archive:
    """The name of an archive's file."""

    timestamp: str
    index: int
    durable: bool

    @classmethod
    def of(cls, name: str) -> "Archive | None":
        """What a file's name says; None if it is no archive's."""
        found = _DATA.fullmatch(name)
        return None if found is None else cls(found[1], int(found[2]), found[3] is not None)

    def __str__(self) -> str:
        return f"{self.timestamp}#{self.index}{'#d' if self.durable else ''}.data"


@dataclasses.dataclass(frozen=True)
class Preference:
    """A reader wants a fragment of this moment, but none of these indexes."""

    timestamp: str
    exclude: frozenset[int] = frozenset()


def preferences_text(preferences: Iterable[Preference]) -> str:
    """As a request has them (X-Backend-Fragment-Preferences), the first one most wanted."""
    return json.dumps([{"timestamp": one.timestamp, "exclude": sorted(one.exclude)} for one in preferences])


def parse_preferences(text: str) -> list[Preference]:
    """Preferences from a request. Raises: ValueError."""
    try:
        found = [Preference(str(one["timestamp"]), frozenset(map(int, one["exclude"]))) for one in json.loads(text)]
    except (KeyError, TypeError) as error:
        raise ValueError(text) from error
    return found


class FragmentDir(ObjectDir):
    """All fragments of one object on one device."""

    def __init__(self, device_dir: Path, directory: Path, code: Code) -> None:
        super().__init__(device_dir, directory)
        self._code = code

    def archives(self) -> list[Archive]:
        """The archives of versions that count, oldest first: the newest durable one, and what is newer."""
        return sorted(_archives(current_files(self._names())))

    def versions(self) -> Versions:
        """The newest file of each kind; of archives the newest durable one."""
        return _versions(self._names())

    def read_info(self, preferences: Sequence[Preference] | None = None) -> ObjectInfo | None:
        """A fragment and what is known of its object; None if there is none, or none that is preferred.

        Without `preferences` only what is durable counts; with them, though there be none in it, also what is not.
        Raises: DamagedFileError.
        """
        names = self._names()
        versions = _versions(names)
        chosen = _choose(sorted(_archives(current_files(names))), preferences)
        if chosen is None:
            return None
        try:
            return self._info_of(str(chosen), chosen.timestamp, versions.meta)
        except FileNotFoundError:  # it was made durable, or something newer came, between listing and opening
            return self.read_info(preferences)

    def commit_data(self, new: NewFile, timestamp: str, content_type: str, metadata: dict[str, str]) -> None:
        """Store a written archive; it is not durable yet."""
        new.write_footer({"etag": new.etag, "content_type": content_type, "metadata": metadata})
        self._commit(new, str(Archive(timestamp, int(metadata[INDEX]), durable=False)))

    def make_durable(self, timestamp: str, index: int) -> None:
        """Make a stored archive the object's newest version, durably.

        Who finds another copy durable may have done so already, or something newer may have come.
        Raises: FileNotFoundError if it is not there for another reason.
        """
        stored = Archive(timestamp, index, durable=False)
        try:
            os.rename(self.directory / str(stored), self.directory / str(dataclasses.replace(stored, durable=True)))
        except FileNotFoundError:
            if self.versions().newest < timestamp:
                raise
        self._sync()
        self._remove_old()

    def check(self) -> int:
        """Read all files, and each fragment of archives. Returns their bytes. Raises: as `ObjectDir.check`."""
        return sum(self._check_file(name) for name in os.listdir(self.directory))

    @staticmethod
    def current(names: Collection[str]) -> set[str]:
        """Those of an object's files that count; the others are removed."""
        return current_files(names)

    def _check_file(self, name: str) -> int:
        path = self.directory / name
        size = check_file(path, name)
        archive = Archive.of(name)
        if archive is not None:
            footer, _ = read_footer(path)
            _check_fragments(path, int(footer["metadata"][SIZE]), archive.index, self._code)
        return size

    def _names(self) -> list[str]:
        try:
            return os.listdir(self.directory)
        except FileNotFoundError:
            return []


def object_at(device_dir: Path, directory: Path, policies: Policies) -> ObjectDir:
    """The files of an object in a directory of a policy's (`<device>/objects-1/<partition>/<suffix>/<hash>`)."""
    code = code_of(policies, policy_index(directory.parents[2].name))
    return ObjectDir(device_dir, directory) if code is None else FragmentDir(device_dir, directory, code)


def current_files(names: Collection[str]) -> set[str]:
    """Those of the files of an object that count."""
    archives = list(_archives(names))
    durable = max((one.timestamp for one in archives if one.durable), default="")
    others = {name for name in names if not name.endswith(".data")}
    kept = {name for name in newest_files({*others, f"{durable}.data"}) if not name.endswith(".data")}
    deleted = max((name.removesuffix(".ts") for name in kept if name.endswith(".ts")), default="")
    certain = {(one.timestamp, one.index) for one in archives if one.durable}
    for one in archives:
        is_newest = one.durable and one.timestamp == durable > deleted
        is_under_way = one.timestamp >= max(durable, deleted) and (one.timestamp, one.index) not in certain
        if is_newest or (not one.durable and is_under_way):
            kept.add(str(one))
    return kept


def held_as(names: Collection[str], index: int) -> set[str]:
    """What counts of an object's files for who should hold the fragment of that index, in names that omit it.

    Two devices hold the same versions, each its own fragment, if these are equal: `<timestamp>#d.data`, .meta, .ts.
    """
    current = current_files(names)
    own = {str_without_index(one) for one in _archives(current) if one.durable and one.index == index}
    return own | {name for name in current if not name.endswith(".data")}


def str_without_index(archive: Archive) -> str:
    """The name of a durable archive, whatever its index."""
    return f"{archive.timestamp}#d.data"


def with_index(name: str, index: int) -> str:
    """The file of that index, of a name without one; other files' names as they are."""
    stem, mark, _ = name.partition("#d.data")
    return str(Archive(stem, index, durable=True)) if mark else name


def is_undecided(name: str, before: str) -> bool:
    """Whether a file is an archive that has not become durable since before that moment."""
    archive = Archive.of(name)
    return archive is not None and not archive.durable and archive.timestamp < before


def _archives(names: Iterable[str]) -> Iterable[Archive]:
    return (found for name in names if (found := Archive.of(name)) is not None)


def _versions(names: Sequence[str]) -> Versions:
    newest = {".meta": "", ".ts": ""}
    for name in names:
        stem, suffix = os.path.splitext(name)
        if suffix in newest:
            newest[suffix] = max(newest[suffix], stem)
    durable = max((one.timestamp for one in _archives(names) if one.durable), default="")
    return Versions(durable, newest[".meta"], newest[".ts"])


def _choose(archives: Sequence[Archive], preferences: Sequence[Preference] | None) -> Archive | None:
    """Which of a device's archives (oldest first) a reader gets."""
    left = {one.timestamp: [each for each in archives if each.timestamp == one.timestamp] for one in archives}
    for wanted in preferences or ():
        found = [one for one in left.get(wanted.timestamp, ()) if one.index not in wanted.exclude]
        if found:
            return found[-1]
        left.pop(wanted.timestamp, None)
    durable = [one for each in left.values() for one in each if any(other.durable for other in each)]
    if durable or preferences is None:
        return durable[-1] if durable else None
    return max((one for each in left.values() for one in each), default=None)


def _check_fragments(path: Path, size: int, index: int, code: Code) -> None:
    """Read each fragment of an archive. Raises: DamagedFileError, FileNotFoundError."""
    with open(path, "rb") as file:
        for number in range(-(-size // code.segment_bytes)):
            fragment = file.read(code.fragment_len(code.segment_len(number, size)))
            if not code.is_sound(fragment, index):
                raise DamagedFileError(path)
