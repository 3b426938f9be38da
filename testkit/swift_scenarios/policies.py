"""Storage policies: what is asked of a store with several, of replicas and fragments, and of Swift with the same.

Both have those of the bundled topology `policies`; Swift's answers are in a file of their own.
"""

import json
from collections.abc import Callable, Mapping

from storage_cluster import topology
from testkit.swift_scenarios import recording
from testkit.swift_scenarios.site import MANIFESTED, Exchange, Site

FILE = recording.FILE.with_name("swift-2.30.1-policies.jsonl")
TOPOLOGY = "policies"
POLICIES = topology.load(topology.find(TOPOLOGY)).policies
SEGMENT = 1_048_576
_RANGES = (
    *("0-0", "0-9", "5-", "-1", "-0", "-5000000", "9-5", "x"),
    *(f"{SEGMENT - 1}-{SEGMENT}", f"{SEGMENT}-{SEGMENT}", f"{SEGMENT}-", f"{2 * SEGMENT - 5}-{2 * SEGMENT + 5}"),
    *("0-0,5-6", f"3-4,{SEGMENT - 2}-{SEGMENT + 1},-3", "0-1,9999999-", "9999999-9999999", "9999998-,9999999-"),
    *("0-9,5-14,3-4", "5-6,1-2"),
)


def containers(site: Site) -> None:
    """Which policy a container has, and what does not change it."""
    for name in ("gold", "Silver", "THREE", "coded", "CODED", "bronze", "none", "", "0", "Policy-0", "gold, silver"):
        site.ask("PUT", f"/made-{name.replace(', ', '-').lower()}", {"X-Storage-Policy": name}, b"")
    site.ask("PUT", "/default", {}, b"")
    for container in ("made-gold", "made-silver", "made-three", "made-coded", "default"):
        for method in ("HEAD", "GET"):
            site.ask(method, f"/{container}")
        for name in ("gold", "silver", "coded", "bronze", "none", ""):
            site.ask("PUT", f"/{container}", {"X-Storage-Policy": name, "X-Container-Meta-Mark": name or "empty"}, b"")
        site.ask("PUT", f"/{container}", {}, b"")
        site.ask("POST", f"/{container}", {"X-Storage-Policy": "silver"}, b"")
        site.ask("HEAD", f"/{container}")
    site.ask("GET", "?format=json")
    site.ask("DELETE", "/made-silver")
    site.ask("PUT", "/made-silver", {"X-Storage-Policy": "coded"}, b"")
    site.ask("HEAD", "/made-silver")
    site.ask("PUT", "/made-silver/o", {}, b"anew")
    site.ask("GET", "/made-silver/o")
    site.ask("GET", "//info", user=None)


def objects(policy: str) -> Callable[[Site], None]:
    """What is done with objects in a container of this policy."""

    def scenario(site: Site) -> None:
        site.ask("PUT", "/c", {"X-Storage-Policy": policy}, b"")
        for size in (0, 1, SEGMENT - 1, SEGMENT, SEGMENT + 1, 2 * SEGMENT + 17):
            _written_and_read(site, size)
        _ranges(site)
        _conditions(site)
        _changes(site)
        _beyond_one_object(site)

    return scenario


def copies(site: Site) -> None:
    """Copies from each policy to each other one."""
    names = ("gold", "silver", "coded")
    for name in names:
        site.quietly("PUT", f"/{name}", {"X-Storage-Policy": name}, b"")
        site.quietly("PUT", f"/{name}/from", {"X-Object-Meta-Of": name, "Content-Type": "text/plain"}, _body(3000))
    for source in names:
        for target in names:
            site.ask("COPY", f"/{source}/from", {"Destination": f"{target}/by-{source}"})
            site.ask("HEAD", f"/{target}/by-{source}")
            site.ask("GET", f"/{target}/by-{source}", {"Range": "bytes=2990-"})
            headers = {"X-Copy-From": f"{source}/from", "X-Object-Meta-Own": "1", "X-Fresh-Metadata": "true"}
            site.ask("PUT", f"/{target}/put-{source}", headers, b"")
            site.ask("HEAD", f"/{target}/put-{source}")
            site.ask("COPY", f"/{source}/from", {"Destination": f"{target}/part", "Range": "bytes=10-12"})
            site.ask("GET", f"/{target}/part")
        site.ask("COPY", f"/{source}/none", {"Destination": "gold/none"})
        site.ask("COPY", f"/{source}/from", {"Destination": "none/o"})
    for name in names:
        site.ask("GET", f"/{name}?format=json")


def _body(size: int) -> bytes:
    return (b"0123456789abcdefghijklmnopqrstuvwxyz" * (size // 36 + 1))[:size]


def _written_and_read(site: Site, size: int) -> None:
    path = f"/c/sized-{size}"
    site.ask("PUT", path, {"X-Object-Meta-Size": str(size), "Content-Type": "text/plain"}, _body(size))
    for method in ("HEAD", "GET"):
        site.ask(method, path)
        for spec in (f"{size}-", f"{size - 1}-" if size else "0-", "-1"):
            site.ask(method, path, {"Range": f"bytes={spec}"})


def _ranges(site: Site) -> None:
    site.quietly("PUT", "/c/ranges", {"Content-Type": "text/plain"}, _body(2 * SEGMENT + 17))
    for spec in _RANGES:
        site.ask("GET", "/c/ranges", {"Range": f"bytes={spec}"})


def _conditions(site: Site) -> None:
    put = site.ask("PUT", "/c/conditions", {}, b"condition")
    etag = put.header("Etag") or ""
    past, future = "Fri, 01 Jan 2010 00:00:00 GMT", "Fri, 01 Jan 2100 00:00:00 GMT"
    asked: tuple[Mapping[str, str], ...] = (
        *({"If-Match": value} for value in (etag, f'"{etag}"', "other", "*", f"other, {etag}")),
        *({"If-None-Match": value} for value in (etag, "other", "*")),
        *({"If-Modified-Since": value} for value in (past, future, "no date")),
        *({"If-Unmodified-Since": value} for value in (past, future)),
        {"If-Match": etag, "Range": "bytes=2-4"},
        {"If-None-Match": etag, "Range": "bytes=2-4"},
        {"If-Match": "other", "Range": "bytes=100-"},
        {"If-Range": "other", "Range": "bytes=2-4"},
    )
    for headers in asked:
        for method in ("GET", "HEAD"):
            site.ask(method, "/c/conditions", headers)
    for name in ("If-Match", "If-None-Match"):
        for method in ("GET", "HEAD"):
            site.ask(method, "/c/none", {name: "*"})
    for headers in ({"If-None-Match": "*"}, {"If-None-Match": etag}, {"Etag": "0" * 32}, {"Etag": etag}, {"Etag": "x"}):
        site.ask("PUT", "/c/conditions", headers, b"condition")


def _changes(site: Site) -> None:
    site.ask("PUT", "/c/changed", {"X-Object-Meta-A": "1", "Content-Encoding": "x"}, b"first")
    site.ask("POST", "/c/changed", {"X-Object-Meta-B": "2", "Content-Type": "text/html"})
    site.ask("HEAD", "/c/changed")
    site.ask("PUT", "/c/changed", {"Content-Type": "text/plain"}, b"second, longer")
    site.ask("GET", "/c/changed", {"X-Newest": "true"})
    site.ask("POST", "/c/changed", {"X-Delete-At": "4102444800"})
    site.ask("GET", "/c/changed")
    site.ask("POST", "/c/none", {"X-Object-Meta-A": "1"})
    for _ in range(2):
        site.ask("DELETE", "/c/changed")
        site.ask("GET", "/c/changed")
    site.ask("PUT", "/c/changed", {}, b"again")
    site.ask("GET", "/c/changed")


def _beyond_one_object(site: Site) -> None:
    for name in ("1", "2"):
        site.quietly("PUT", f"/c/part-{name}", {"Content-Type": "text/plain"}, _body(1000))
    manifest = json.dumps([{"path": "/c/part-1"}, {"path": "/c/part-2", "range": "10-19"}]).encode()
    static = f"/c/{MANIFESTED}-static"
    site.ask("PUT", f"{static}?multipart-manifest=put", {"Content-Type": "text/plain"}, manifest)
    site.ask("PUT", "/c/dynamic", {"X-Object-Manifest": "c/part-", "Content-Type": "text/plain"}, b"")
    site.ask("PUT", "/c/link", {"X-Symlink-Target": "c/part-2"}, b"")
    for path in (static, "/c/dynamic", "/c/link"):
        site.ask("HEAD", path)
        for spec in ("990-1009", "-5", "0-1,995-1004"):
            site.ask("GET", path, {"Range": f"bytes={spec}"})
    site.ask("GET", "/c/link?symlink=get")
    site.ask("GET", "/c?format=json")


AREAS: dict[str, Callable[[Site], None]] = {
    "policies of containers": containers,
    "objects of two replicas": objects("silver"),
    "objects in fragments": objects("coded"),
    "copies across policies": copies,
}


def run(site: Site, area: str) -> list[Exchange]:
    """What a store with these policies answers in an area."""
    site.clear()
    site.exchanges.clear()
    AREAS[area](site)
    return list(site.exchanges)
