"""What is asked of static web sites and bulk operations. Source: Swift docs, "StaticWeb", "Bulk Operations"."""

import io
import tarfile
from collections.abc import Mapping

from testkit.swift_scenarios.site import OWNER, Site

META = "X-Container-Meta-Web-"


def staticweb(site: Site) -> None:
    """Containers as web sites, for browsers."""
    site.quietly("PUT", "/w", {"X-Container-Read": ".r:*,.rlistings"})
    for name, kind, body in (
        *(("index.html", "text/html", b"INDEX"), ("a.txt", "text/plain", b"aaa"), ("l.css", "text/css", b"body{}")),
        *(
            ("sub/index.html", "text/html", b"SUB"),
            ("sub/b.txt", "text/plain", b"b"),
            ("folder/", "application/directory", b""),
        ),
        *(("plain/c%20%26%3C.txt", "text/plain", bytes(5000)), ("401error.html", "text/html", b"E401")),
        *(("404error.html", "text/html", b"E404"), ("marked", "text/directory", b"")),
    ):
        site.quietly("PUT", f"/w/{name}", {"Content-Type": kind}, body)
    _visit(site, ("", "/", "/a.txt"))
    site.quietly("POST", "/w", {f"{META}Index": "index.html"})
    _visit(site, ("", "/", "/sub", "/sub/", "/plain", "/plain/", "/none", "/folder", "/folder/", "/a.txt", "/marked"))
    for headers in ({}, {"X-Web-Mode": "true"}):
        for path in ("/", "/sub", "/none"):
            site.ask("GET", f"/w{path}", headers)
    for path in ("/", "/sub/"):
        site.ask("HEAD", f"/w{path}", user=None)
    site.quietly("POST", "/w", {f"{META}Error": "error.html"})
    _visit(site, ("/none", "/plain/"))
    site.quietly("POST", "/w", {f"{META}Listings": "true"})
    _visit(site, ("/plain/", "/plain", "/plain/?limit=1", "/folder/", "/none/", "/?format=json", "?delimiter=/"))
    site.quietly("POST", "/w", {f"{META}Index": "", f"{META}Listings-CSS": "l.css"})
    _visit(site, ("/", "", "/plain/"))
    site.quietly("POST", "/w", {f"{META}Listings-CSS": "http://x/y.css", f"{META}Listings-Label": "label"})
    _visit(site, ("/", "/sub/"))
    site.ask("HEAD", "/w/", user=None)
    site.quietly("POST", "/w", {"X-Container-Read": ".r:*"})
    _visit(site, ("/", "/plain/", "/a.txt", "/none"))
    site.quietly("POST", "/w", {"X-Container-Read": ""})
    _visit(site, ("/", "/a.txt", "/none"))
    site.ask("GET", "/w/none", {"X-Web-Mode": "true"})
    site.quietly("POST", "/w", {f"{META}Index": "index.html", f"{META}Directory-Type": "text/directory"})
    site.quietly("POST", "/w", {"X-Container-Read": ".r:*"})
    _visit(site, ("/marked", "/marked/", "/folder"))
    site.ask("PUT", "/w/o", {}, b"", user=None)
    site.ask("POST", "/w/", user=None)


def _visit(site: Site, paths: tuple[str, ...]) -> None:
    for path in paths:
        site.ask("GET", f"/w{path}", user=None)


def _archive(files: Mapping[str, bytes | None], mode: str = "w:gz") -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=mode) as archive:  # type: ignore[call-overload]
        for name, body in files.items():
            member = tarfile.TarInfo(name)
            member.type = tarfile.DIRTYPE if body is None else tarfile.REGTYPE
            member.size = len(body or b"")
            archive.addfile(member, io.BytesIO(body or b""))
    return made.getvalue()


FILES: Mapping[str, bytes | None] = {"d/": None, "x1/a.txt": b"hello", "x1/x/b": b"yy", "x2/%C3%A9 ☃": b"1"}


def bulk_upload(site: Site) -> None:
    """Archives."""
    tar, gz = _archive(FILES, "w:"), _archive(FILES)
    site.ask("PUT", "/?extract-archive=tar.gz", {}, gz)
    site.ask("PUT", "/bk?extract-archive=tar.gz", {}, gz)
    site.ask("PUT", "/bk/pre/fix?extract-archive=tar", {"Accept": "application/json"}, tar)
    site.ask("PUT", "/bk?extract-archive=tar.bz2", {"Accept": "application/xml"}, _archive(FILES, "w:bz2"))
    site.ask("PUT", "/bk?extract-archive=tar", {"Accept": "text/xml"}, tar)
    site.ask("GET", "/bk?format=json")
    site.ask("GET", "/x1")
    site.ask("GET", "/x1/a.txt")
    for form, body in (("tar.gz", b"garbage"), ("tar.bz2", b"garbage"), ("zip", b"x"), ("tar", b""), ("TAR", tar)):
        site.ask("PUT", f"/bk?extract-archive={form}", {}, body)
    site.ask("PUT", "/bk?extract-archive=tar", {}, _archive({}, "w:"))
    site.ask("PUT", "/bk?extract-archive=tar", {"Accept": "image/x"}, tar)
    site.ask(
        "PUT",
        "/?extract-archive=tar",
        {},
        _archive({"top": b"x", "ok" * 129 + "/x": b"y", f"q/{'o' * 1100}": b""}, "w:"),
    )
    site.ask("POST", "/bk?extract-archive=tar", {}, tar)
    for user in (None, "test:tester3"):
        site.ask("PUT", "/bk?extract-archive=tar", {}, tar, user=user)
        site.ask("PUT", "/fresh?extract-archive=tar", {"Accept": "application/json"}, tar, user=user)


def bulk_delete(site: Site) -> None:
    """Many deletions in one request."""
    site.quietly("PUT", "/?extract-archive=tar.gz", {}, _archive(FILES))
    text = {"Content-Type": "text/plain"}
    lines = "x1/a.txt\n/x1/none\n\nx1/x%2Fb\nx%FF/x\nabsent\nx2\n"
    _delete(site, lines.encode(), text)
    _delete(site, b"x1/a.txt\nx2/%25C3%25A9%20%E2%98%83\nx2", text | {"Accept": "application/json"})
    site.quietly("PUT", "/x3")
    site.quietly("PUT", "/x3/o", {}, b"")
    _delete(site, b"x3\n<&\n", {"Accept": "text/xml"})
    _delete(site, b"x3\n", {"Accept": "application/xml"})
    _delete(site, b"x1/a.txt", text | {"Accept": "application/json"}, method="DELETE")
    _delete(site, b"", text)
    _delete(site, b"zz/a\nzz/b", text)
    _delete(site, b"x" * 3000 + b"\nq", text)
    _delete(site, b"x3/o", text, path="/x3")
    _delete(site, b"a/x", text | {"Accept": "image/png"})
    for user in (None, "test:tester3"):
        _delete(site, b"x1/x", text, user=user)
    site.ask("PUT", "?bulk-delete", text, b"x1/x")


def _delete(
    site: Site, body: bytes, headers: dict[str, str], *, method: str = "POST", path: str = "", user: str | None = OWNER
) -> None:
    site.ask(method, f"{path}?bulk-delete", headers, body, user=user)
