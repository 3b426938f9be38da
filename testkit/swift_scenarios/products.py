"""Scenarios from the product of features: how versions are kept × what an object is × what is done to it × who asks.

Of the whole product every pair of features is there, in the same order each time. A scenario writes an object twice
(so that there is an old one to keep), acts on it, and then reads what is left of it in every way there is.

    versions  none, stack, history, enabled, suspended
    kinds     plain, large (static and dynamic), symlinks (soft, static, static to a large object)
    actions   nothing, overwrite, DELETE once and twice, POST, POST and PUT that expire, COPY, a manifest's DELETE
    readers   the owner; a reader and a writer by access list, nobody with `.r:*`, a stranger

So are manifests of static large objects, from the fields of an entry (`manifests`), and paths and headers, from places
and spellings (`spellings`).

Names of objects that hold a manifest say so (`MANIFESTED`), since its ETag has times in it.
"""

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from urllib.parse import quote

from testkit.swift_scenarios.site import MANIFESTED, OWNER, Site

READER = "test:tester3"
LATER = "4102444800"
_ACCESS: Mapping[str, tuple[dict[str, str], str | None]] = {
    "reader": ({"X-Container-Read": READER}, READER),
    "writer": ({"X-Container-Write": READER}, READER),
    "nobody": ({"X-Container-Read": ".r:*"}, None),
    "stranger": ({}, "test2:tester2"),
}
VERSIONS: Mapping[str, dict[str, str]] = {
    "none": {},
    "stack": {"X-Versions-Location": "{}-kept"},
    "history": {"X-History-Location": "{}-kept"},
    "enabled": {"X-Versions-Enabled": "true"},
    "suspended": {"X-Versions-Enabled": "true"},
}


@dataclasses.dataclass
class Place:
    """Where a scenario takes place, and what it knows."""

    site: Site
    container: str
    versions: str
    name: str
    user: str | None
    first_id: str | None = None

    @property
    def path(self) -> str:
        """The object's."""
        return f"{self.container}/{self.name}"

    def put(self, headers: Mapping[str, str], body: bytes, query: str = "") -> None:
        """Write the object; the id of its first version is remembered."""
        answer = self.site.ask("PUT", self.path + query, headers, body)
        self.first_id = self.first_id or answer.header("X-Object-Version-Id")


Write = Callable[[Place, str], None]
Action = Callable[[Place, Write], None]


def _plain(place: Place, mark: str) -> None:
    place.put({"Content-Type": "text/plain", "X-Object-Meta-Mark": mark}, mark.encode())


def _static_large(place: Place, mark: str) -> None:
    manifest = json.dumps([{"path": f"/parts/{mark}1"}, {"path": f"/parts/{mark}2"}]).encode()
    place.put({"X-Object-Meta-Mark": mark}, manifest, "?multipart-manifest=put")


def _dynamic_large(place: Place, mark: str) -> None:
    place.put({"X-Object-Manifest": f"parts/{mark}", "X-Object-Meta-Mark": mark}, b"")


def _soft_link(place: Place, mark: str) -> None:
    place.put({"X-Symlink-Target": f"parts/{mark}1", "X-Object-Meta-Mark": mark}, b"")


def _static_link(place: Place, mark: str) -> None:
    _link_to(place, f"parts/{mark}1", mark)


def _link_to_large(place: Place, mark: str) -> None:
    _link_to(place, f"parts/{MANIFESTED}-{mark}", mark)


def _link_to(place: Place, target: str, mark: str) -> None:
    etag = place.site.quietly("HEAD", f"/{target}?multipart-manifest=get").header("Etag") or ""
    headers = {"X-Symlink-Target": target, "X-Symlink-Target-Etag": etag.strip('"'), "X-Object-Meta-Mark": mark}
    place.put(headers, b"")


def _nothing(_: Place, __: Write) -> None:
    pass


def _overwrite(place: Place, write: Write) -> None:
    write(place, "c")


def _delete(place: Place, _: Write) -> None:
    place.site.ask("DELETE", place.path)


def _delete_twice(place: Place, _: Write) -> None:
    for _again in range(2):
        place.site.ask("DELETE", place.path)


def _delete_thrice(place: Place, write: Write) -> None:
    place.site.ask("DELETE", place.path)
    write(place, "c")
    for _again in range(2):
        place.site.ask("DELETE", place.path)


def _post(place: Place, _: Write) -> None:
    place.site.ask("POST", place.path, {"X-Object-Meta-Mark": "posted", "Content-Type": "x/y"})


def _post_expiry(place: Place, _: Write) -> None:
    place.site.ask("POST", place.path, {"X-Delete-At": LATER, "X-Object-Meta-Mark": "ends"})


def _put_expiry(place: Place, write: Write) -> None:
    place.put({"Content-Type": "text/plain", "X-Delete-At": LATER}, b"ends")
    write(place, "c")


def _copy(place: Place, _: Write) -> None:
    place.site.ask("COPY", place.path, {"Destination": f"{place.container}/copied"})
    place.site.ask("GET", f"{place.container}/copied")


def _delete_manifest(place: Place, _: Write) -> None:
    headers = {"Accept": "application/json"}
    version = f"&version-id={place.first_id}" if place.first_id else ""
    place.site.ask("DELETE", f"{place.path}?multipart-manifest=delete{version}", headers)
    place.site.ask("GET", "/parts")


def _by_another(place: Place, _: Write) -> None:
    place.site.ask("PUT", place.path, {}, b"another", user=place.user)
    place.site.ask("DELETE", place.path, user=place.user)


KINDS: Mapping[str, Write] = {
    "plain": _plain,
    MANIFESTED: _static_large,
    "dynamic": _dynamic_large,
    "soft": _soft_link,
    "static": _static_link,
    f"{MANIFESTED}-link": _link_to_large,
}
ACTIONS: tuple[Action, ...] = (
    *(_nothing, _overwrite, _delete, _delete_twice, _delete_thrice),
    *(_post, _post_expiry, _put_expiry, _copy, _delete_manifest, _by_another),
)
_SHARE = 3
"""One of so many of the combinations is taken: with every axis at least as long, each pair of features is in one."""


def choices() -> Iterator[tuple[str, str, Action, str]]:
    """The scenarios: how versions are kept, kind, action, reader."""
    product = itertools.product(enumerate(VERSIONS), enumerate(KINDS), enumerate(ACTIONS))
    readers = itertools.cycle(_ACCESS)
    for (at, versions), (kind_at, kind), (action_at, action) in product:
        if (at + kind_at + action_at) % _SHARE == 0:
            yield versions, kind, action, next(readers)


_FIELDS: Mapping[str, Sequence[object]] = {
    "path": ("/parts/a1", "parts/a1", "//parts/a1", "/parts/none", "parts/empty", "/parts/", "parts//", "c/whole"),
    "etag": (None, hashlib.md5(b"a1").hexdigest(), "0" * 32, 5),
    "size_bytes": (None, 2, "2", 3, 0, -1, "x"),
    "range": (None, "", "0-", "0-1", "1-", "-1", "-0", "9-", "x", "0-0,1-1", 5),
}
_REPORTS = (
    ("", "text/plain"),
    ("&heartbeat=on", "application/json"),
    ("", "text/xml"),
    ("&heartbeat=on", "text/plain"),
)
_FIELDS_SHARE = 5
"""One of so many pairs of fields is taken; no axis has a multiple of it, so that each value is there."""


def manifests(site: Site) -> None:
    """PUTs of manifests of which one entry has every pair of fields; what is stored is shown."""
    _prepare(site)
    site.quietly("PUT", "/c")
    site.quietly("PUT", "/parts/empty", {}, b"")
    pairs = (
        {one: value, other: value_of_other}
        for one, other in itertools.combinations(_FIELDS, 2)
        for value, value_of_other in itertools.product(_FIELDS[one], _FIELDS[other])
    )
    reports, orders = itertools.cycle(_REPORTS), itertools.cycle((1, 1, 1, -1, -1))
    for fields in itertools.islice(pairs, 0, None, _FIELDS_SHARE):
        query, accept = next(reports)
        entries = [{"path": "/parts/a1"} | fields, {"path": "/parts/b1"}][:: next(orders)]
        text = json.dumps(entries).encode()
        site.ask("PUT", f"/c/whole?multipart-manifest=put{query}", {"Accept": accept}, text)
        site.ask("GET", "/c/whole?multipart-manifest=get&format=raw")
        site.quietly("DELETE", "/c/whole")


_SPELLINGS = ("\xe9", "%E9", "\xc3\xa9", "%C3%A9", "%00", "%2F")
_PLACES = ("/{}", "/c/{}", "/c?prefix={}&format=json", "/c?marker={}", "/c/o?x={}", "?prefix={}", "?{}=x")
_HEADERS = (
    *("Referer", "User-Agent", "X-Auth-Token", "Etag", "Content-Type", "X-Object-Meta-A", "X-Container-Meta-A"),
    *("X-Account-Meta-A", "X-Container-Read", "X-Versions-Location", "X-Container-Meta-Web-Index", "X-Delete-At"),
    *("X-Object-Manifest", "X-Symlink-Target", "Content-Disposition", "Range", "If-None-Match"),
)


def spellings(site: Site) -> None:
    """Bytes that are no UTF-8, and others, raw and percent-encoded, wherever a client may send them."""
    site.quietly("PUT", "/c")
    site.quietly("PUT", "/c/o", {}, b"x")
    for place, text, method in itertools.product(_PLACES, _SPELLINGS, ("PUT", "GET")):
        if method == "GET" or "?" not in place:
            site.ask(method, place.format(text), {}, b"" if method == "PUT" else None)
    for name, text in itertools.product(_HEADERS, ("\xe9", "\xc3\xa9")):
        path = "" if "Account" in name else "/c" if "Container" in name or "Versions" in name else "/c/o"
        for method in ("POST", "GET") if path != "/c/o" else ("PUT", "GET"):
            user = None if name == "X-Auth-Token" else OWNER
            site.ask(method, path, {name: text}, b"" if method == "PUT" else None, user=user)
        site.quietly("POST", "/c", {"X-Versions-Location": ""})


def area(versions: str) -> Callable[[Site], None]:
    """All scenarios with versions kept that way."""

    def ask(site: Site) -> None:
        _prepare(site)
        for number, (kept, kind, action, reader) in enumerate(choices()):
            if kept == versions:
                _play(Place(site, f"/c{number}", versions, kind, _ACCESS[reader][1]), action, _ACCESS[reader][0])

    return ask


def _play(place: Place, action: Action, access: Mapping[str, str]) -> None:
    site, write = place.site, KINDS[place.name]
    headers = {name: value.format(place.container[1:]) for name, value in VERSIONS[place.versions].items()}
    site.quietly("PUT", f"{place.container}-kept")
    site.quietly("PUT", place.container, {**access, **headers})
    for mark in "ab":
        write(place, mark)
    if place.versions == "suspended":
        site.quietly("POST", place.container, {"X-Versions-Enabled": "false"})
    action(place, write)
    _look(place)
    _remove_versions(place)
    if action is _delete_manifest:
        _prepare(site)


def _prepare(site: Site) -> None:
    site.quietly("PUT", "/parts", {"X-Container-Read": f".r:*,{READER}"})
    for mark in "abc":
        for part in "12":
            site.quietly("PUT", f"/parts/{mark}{part}", {"Content-Type": "text/plain"}, f"{mark}{part}".encode())
        manifest = json.dumps([{"path": f"/parts/{mark}1"}]).encode()
        site.quietly("PUT", f"/parts/{MANIFESTED}-{mark}?multipart-manifest=put", {}, manifest)


def _look(place: Place) -> None:
    """All that can be seen of an object."""
    site, path = place.site, place.path
    site.ask("GET", path)
    site.ask("GET", path, user=place.user)
    site.ask("HEAD", f"{path}?symlink=get")
    site.ask("GET", f"{place.container}?format=json")
    if place.versions in ("stack", "history"):
        site.ask("GET", f"{place.container}-kept?format=json")
    if place.first_id is None:
        return
    site.ask("GET", f"{path}?version-id={place.first_id}")
    site.ask("GET", f"{path}?version-id={place.first_id}", user=place.user)
    site.ask("GET", f"{path}?version-id=null")
    site.ask("GET", f"{place.container}?versions")


def _remove_versions(place: Place) -> None:
    """Versions stand in the way of a container's deletion."""
    listed = place.site.quietly("GET", f"{place.container}?versions") if place.first_id else None
    for entry in json.loads(listed.body) if listed else []:
        version = f"?version-id={entry['version_id']}"
        place.site.quietly("DELETE", f"{place.container}/{quote(entry['name'])}{version}")
