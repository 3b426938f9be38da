"""What is asked of objects made of others. Source: Swift documentation, "Large Object Support"."""

import hashlib
import json
from typing import Any

from testkit.swift_scenarios.site import Site

PARTS = (b"aaaaa", b"bbbbb", b"ccc")


def _etag(data: bytes) -> str:
    return hashlib.md5(data).hexdigest()


def _upload_parts(site: Site) -> None:
    for container in ("parts", "c"):
        site.quietly("PUT", f"/{container}")
    for number, body in enumerate(PARTS):
        site.quietly("PUT", f"/parts/p/{number}", {"Content-Type": "x/part"}, body)


def static(site: Site) -> None:
    """Static large objects."""
    _upload_parts(site)
    whole: list[dict[str, Any]] = [
        {"path": f"/parts/p/{number}", "etag": _etag(body), "size_bytes": len(body)}
        for number, body in enumerate(PARTS)
    ]
    _put(site, "whole", whole, {"Content-Type": "text/plain", "X-Object-Meta-A": "1"})
    site.ask("GET", "/c/whole")
    site.ask("HEAD", "/c/whole")
    site.ask("GET", "/c/whole?multipart-manifest=get")
    site.ask("GET", "/c/whole?multipart-manifest=get&format=raw")
    site.ask("HEAD", "/c/whole?multipart-manifest=get")
    for text in ("bytes=0-3", "bytes=4-6", "bytes=-4", "bytes=12-", "bytes=13-", "bytes=0-1,11-12"):
        site.ask("GET", "/c/whole", {"Range": text})
    etag = _etag("".join(_etag(body) for body in PARTS).encode())
    for headers in ({"If-Match": f'"{etag}"'}, {"If-None-Match": f'"{etag}"'}, {"If-Match": "abc"}):
        site.ask("GET", "/c/whole", headers)
    _put(site, "ranged", [{"path": "/parts/p/0", "range": "1-2"}, {"path": "/parts/p/1", "range": "-2"}])
    site.ask("GET", "/c/ranged")
    site.ask("GET", "/c/ranged?multipart-manifest=get")
    _put(site, "nested", [{"path": "/c/whole"}, {"path": "/parts/p/2"}])
    site.ask("GET", "/c/nested")
    _put(site, "inline", [{"data": "aGk="}, {"path": "/parts/p/0"}])
    site.ask("GET", "/c/inline")
    _put(site, "tagged", whole, {"ETag": etag})
    _put(site, "tagged", whole, {"ETag": "0" * 32})
    _refusals(site, whole)
    site.ask("POST", "/c/whole", {"X-Object-Meta-B": "2"})
    site.ask("HEAD", "/c/whole")
    site.ask("COPY", "/c/whole", {"Destination": "/c/flat"})
    site.ask("HEAD", "/c/flat")
    site.ask("COPY", "/c/whole?multipart-manifest=get", {"Destination": "/c/manifest"})
    site.ask("HEAD", "/c/manifest")
    site.ask("GET", "/c?format=json")
    site.quietly("DELETE", "/parts/p/1")
    site.ask("HEAD", "/c/whole")
    site.ask("GET", "/c/ranged", {"Range": "bytes=0-1"})
    for accept in ("text/plain", "application/json"):
        site.ask("DELETE", "/c/whole?multipart-manifest=delete", {"Accept": accept})
    site.ask("DELETE", "/c/flat?multipart-manifest=delete")
    site.ask("DELETE", "/c/none?multipart-manifest=delete")


def _refusals(site: Site, whole: list[dict[str, Any]]) -> None:
    manifests: tuple[object, ...] = (
        *([], {}, [{}], [{"path": "/parts"}], [{"path": "x"}], [{"path": "/parts/p/none"}], "x"),
        *([whole[0] | {"etag": "0" * 32}], [whole[0] | {"size_bytes": 99}], [whole[0] | {"size_bytes": "x"}]),
        *(
            [whole[0] | {"range": "x"}],
            [whole[0] | {"range": "9-"}],
            [whole[0] | {"more": 1}],
            [{"data": "!"}],
            [{"data": "aGk="}],
        ),
        *([{"path": "/c/refused"}],),
    )
    for manifest in manifests:
        _put(site, "refused", manifest)
    site.ask("PUT", "/c/refused?multipart-manifest=put", {}, b"{not json")
    site.ask("PUT", "/c/refused?multipart-manifest=put", {}, b"")
    site.ask("PUT", "/none/refused?multipart-manifest=put", {}, json.dumps(whole).encode())
    broken = [whole[0] | {"etag": "0" * 32}, {"path": "/parts/p/none"}]
    _put(site, "refused", broken, {"Accept": "application/json"})
    _put(site, "refused", [{"path": "/parts/p/0"}] * 1001)
    site.ask("POST", "/c/whole?multipart-manifest=put", {}, b"[]")


def _put(site: Site, name: str, manifest: object, headers: dict[str, str] | None = None) -> None:
    site.ask("PUT", f"/c/{name}?multipart-manifest=put", headers, json.dumps(manifest).encode())


def dynamic(site: Site) -> None:
    """Dynamic large objects."""
    _upload_parts(site)
    site.ask("PUT", "/c/dyn", {"X-Object-Manifest": "parts/p/", "Content-Type": "text/plain"}, b"")
    site.ask("GET", "/c/dyn")
    site.ask("HEAD", "/c/dyn")
    site.ask("GET", "/c/dyn?multipart-manifest=get")
    for text in ("bytes=0-3", "bytes=4-6", "bytes=-4", "bytes=13-", "bytes=0-1,11-12"):
        site.ask("GET", "/c/dyn", {"Range": text})
    etag = _etag("".join(_etag(body) for body in PARTS).encode())
    for headers in ({"If-Match": f'"{etag}"'}, {"If-None-Match": f'"{etag}"'}):
        site.ask("GET", "/c/dyn", headers)
    for value in ("parts", "parts/", "/parts/p", "parts/none/", "none/x", "parts/p%2F", "parts/p?x", ""):
        site.ask("PUT", "/c/other", {"X-Object-Manifest": value}, b"")
        site.ask("GET", "/c/other")
    site.ask("PUT", "/c/full", {"X-Object-Manifest": "parts/p/"}, b"body")
    site.ask("GET", "/c/full")
    site.ask("POST", "/c/dyn", {"X-Object-Meta-A": "1"})
    site.ask("HEAD", "/c/dyn")
    site.ask("PUT", "/c/again", {"X-Object-Manifest": "parts/p/"}, b"")
    site.ask("COPY", "/c/again", {"Destination": "/c/flat"})
    site.ask("GET", "/c/flat")
    site.ask("COPY", "/c/again?multipart-manifest=get", {"Destination": "/c/manifest"})
    site.ask("HEAD", "/c/manifest")
    site.ask("GET", "/c?format=json")
