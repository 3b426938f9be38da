"""`GET container?versions`: every version of every object, sorted by name, and for each name the newest first.

Two listings are merged: the container's own, which says which version is current and what has no version (`null`), and
that of the container with the versions. A mark of deletion is the latest where nothing is at the name.

Source: Swift, "Object Versioning"; answers as observed in Swift 2.30.
"""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from storage_cluster.servers.http.listings import LIMIT_MAX
from storage_cluster.servers.http.messages import Call, Handler, Refusal, Reply
from storage_cluster.servers.http.values import is_true
from storage_cluster.servers.proxy.accept import best_match
from storage_cluster.servers.proxy.version_copies import DELETED_TYPE, SOURCE
from storage_cluster.servers.proxy.version_names import (
    ARCHIVE,
    MARK,
    POINTER,
    archive_container,
    archive_name,
    is_version_id,
    split_archive_name,
)

_AFTER_ALL = ":"
"""Follows every digit: behind all versions of a name."""

Fields = dict[str, Any]


async def listed_versions(call: Call, inner: Handler) -> Reply:
    """The listing as a JSON reply. Raises: Refusal (400, 406)."""
    _check(call.query)
    reply = await inner(call.derive(query=_without_versions(call.query)))
    if not reply.is_success:
        return reply
    if best_match(call.headers.get("Accept", ""), ("application/json",)) is None:
        raise Refusal(406)
    own = json.loads(await reply.read() or b"[]")
    archived: list[Fields] = []
    if f"X-Container-Sysmeta-{ARCHIVE}" in reply.headers:
        names = (call.names[0], archive_container(call.names[1]))
        query = _archive_query(call.query)
        listing = await inner(call.derive(names=names, query=query, source=SOURCE, privileged=True))
        archived = json.loads(await listing.read() or b"[]") if listing.is_success else []
    merged = _Merge(own, archived, await _marker_version(call, inner), reverse=is_true(call.query.get("reverse")))
    reply.body = json.dumps(merged.entries()[: _limit(call.query)]).encode()
    reply.headers.update({"Content-Type": "application/json; charset=utf-8", "Content-Length": str(len(reply.body))})
    return reply


@dataclasses.dataclass
class _Merge:
    """Both listings, and how they become one."""

    own: list[Fields]
    archived: list[Fields]
    marked: dict[str, str | None]  # where the listing goes on within a name: which version of it is current
    reverse: bool

    def entries(self) -> list[Fields]:
        """Entries in order."""
        folders = {entry["subdir"].lstrip(MARK) for entry in (*self.own, *self.archived) if "subdir" in entry}
        current = self.marked | {entry["name"]: _target_version(entry) for entry in self.own if "name" in entry}
        versions = [_version(entry) for entry in self.archived if "name" in entry]
        newest: dict[str, str] = {}
        for entry in versions:
            newest[entry["name"]] = max(newest.get(entry["name"], ""), entry["version_id"])
        for entry in versions:
            entry["is_latest"] = _is_latest(entry, current, newest)
        rows = [(entry["name"], entry["version_id"], _put_slo_etag_last(entry)) for entry in versions]
        rows += [(entry["name"], "null", _null(entry)) for entry in self.own if _is_null(entry)]
        rows += [(folder, "", {"subdir": folder}) for folder in folders]
        rows.sort(key=lambda row: row[1], reverse=True)  # "null" is above all digits
        rows.sort(key=lambda row: row[0])
        if self.reverse:
            rows.reverse()
        return [entry for _, _, entry in rows]


def _is_latest(entry: Fields, current: Mapping[str, str | None], newest: Mapping[str, str]) -> bool:
    name, version_id = entry["name"], entry["version_id"]
    if name in current:
        return current[name] == version_id
    return newest[name] == version_id and entry["content_type"] == DELETED_TYPE


def _version(entry: Fields) -> Fields:
    name, version_id = split_archive_name(entry["name"])
    return entry | {"name": name, "is_latest": False, "version_id": version_id}


def _put_slo_etag_last(entry: Fields) -> Fields:
    slo_etag = {"slo_etag": entry.pop("slo_etag")} if "slo_etag" in entry else {}
    return entry | slo_etag


def _null(entry: Fields) -> Fields:
    return _put_slo_etag_last(entry | {"version_id": "null", "is_latest": True})


def _is_null(entry: Fields) -> bool:
    return "name" in entry and _target_version(entry) is None


def _target_version(entry: Fields) -> str | None:
    """The version that a row of the container's own listing points to."""
    if not entry.get("version_symlink"):
        return None
    return str(entry["symlink_path"]).rpartition("?version-id=")[2]


async def _marker_version(call: Call, inner: Handler) -> dict[str, str | None]:
    if "version_marker" not in call.query:
        return {}
    names = (*call.names, call.query["marker"])
    query = {"symlink": "get"}
    head = await inner(call.derive(method="HEAD", names=names, query=query, source=SOURCE, privileged=True))
    return {names[-1]: head.headers.get(POINTER)} if head.is_success else {}


def _check(query: Mapping[str, str]) -> None:
    if "version_marker" not in query:
        return
    if not query.get("marker"):
        raise Refusal(400, "version_marker param requires marker")
    if query["version_marker"] != "null" and not is_version_id(query["version_marker"]):
        raise Refusal(400, "invalid version_marker param")


def _without_versions(query: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in query.items() if name not in ("versions", "version_marker", "format")}
    if not query.get("limit", "0").isdigit():
        kept.pop("limit")
    return kept


def _archive_query(query: Mapping[str, str]) -> dict[str, str]:
    """The same run of names in the container with the versions."""
    asked = _without_versions(query)
    reverse, marker = is_true(query.get("reverse")), query.get("marker")
    asked["prefix"] = MARK + query.get("prefix", "")
    if marker:
        asked["marker"] = f"{MARK}{marker}{MARK}{'' if reverse else _AFTER_ALL}"
        if is_version_id(query.get("version_marker", "")):
            asked["marker"] = archive_name(marker, query["version_marker"])
        elif query.get("version_marker") == "null":
            asked["marker"] = f"{MARK}{marker}{MARK}{_AFTER_ALL if reverse else ''}"
    if query.get("end_marker"):
        asked["end_marker"] = f"{MARK}{query['end_marker']}{MARK}{_AFTER_ALL if reverse else ''}"
    return asked


def _limit(query: Mapping[str, str]) -> int:
    text = query.get("limit", "")
    return int(text) if text.isdigit() else LIMIT_MAX
