"""What is asked of objects. Source: Swift API reference, "Objects"; RFC 9110 for conditions and ranges."""

import hashlib
import json

from testkit.swift_scenarios.site import ACCOUNT, Site

ETAG = hashlib.md5(b"hello world").hexdigest()
PAST, FUTURE = "Mon, 01 Jan 2001 00:00:00 GMT", "Fri, 01 Jan 2100 00:00:00 GMT"


def objects(site: Site) -> None:
    """Objects: PUT, GET, HEAD, DELETE."""
    site.ask("PUT", "/none/o", {}, b"x")
    site.quietly("PUT", "/c")
    described = {
        "Content-Type": "text/plain; charset=utf-8",
        "X-Object-Meta-Colour": "blue",
        "Content-Encoding": "gzip",
    }
    site.ask("PUT", "/c/o", described | {"Content-Disposition": "inline", "Cache-Control": "no-cache"}, b"hello world")
    for method in ("GET", "HEAD"):
        site.ask(method, "/c/o")
        site.ask(method, "/c/none")
        site.ask(method, "/none/o")
    site.ask("PUT", "/c/e", {"ETag": ETAG}, b"hello world")
    site.ask("PUT", "/c/e", {"ETag": f'"{ETAG}"'}, b"hello world")
    site.ask("PUT", "/c/e", {"ETag": "0" * 32}, b"hello world")
    site.ask("PUT", "/c/e", {"ETag": "nonsense"}, b"hello world")
    for name, kind in (
        ("x.html", None),
        ("x.unknown", None),
        ("x", ""),
        ("x", "a/b;c=d"),
        ("x", "nonsense"),
        ("x.png", "*/*"),
    ):
        site.ask("PUT", f"/c/{name}", {} if kind is None else {"Content-Type": kind}, b"")
        site.ask("HEAD", f"/c/{name}")
    site.ask("PUT", "/c/detected.html", {"Content-Type": "text/x", "X-Detect-Content-Type": "true"}, b"")
    site.ask("HEAD", "/c/detected.html")
    site.ask("PUT", "/c/big", {"Content-Length": "5368709123"})
    site.ask("PUT", "/c/o", {"If-None-Match": "*"}, b"x")
    site.ask("PUT", "/c/fresh", {"If-None-Match": "*"}, b"x")
    site.ask("PUT", "/c/fresh", {"If-None-Match": "abc"}, b"x")
    site.ask("PUT", "/c/zero", {}, b"")
    site.ask("GET", "/c/zero")
    for method in ("PATCH", "BREW"):
        site.ask("OPTIONS" if method == "BREW" else method, "/c/o")
    site.ask("DELETE", "/c/zero")
    site.ask("DELETE", "/c/zero")
    site.ask("DELETE", "/none/o")
    site.ask("GET", "/c?format=json")


def posts(site: Site) -> None:
    """POST: metadata is replaced."""
    site.quietly("PUT", "/c")
    site.quietly("PUT", "/c/o", {"Content-Type": "text/plain", "X-Object-Meta-A": "1", "Content-Encoding": "x"}, b"abc")
    site.ask("POST", "/c/none", {"X-Object-Meta-A": "1"})
    site.ask("POST", "/none/o", {"X-Object-Meta-A": "1"})
    for headers in (
        {"X-Object-Meta-B": "2"},
        {"Content-Type": "text/html"},
        {"Content-Disposition": "attachment", "Content-Encoding": "gzip", "X-Object-Meta-C": "caf\xc3\xa9"},
        {"X-Remove-Object-Meta-C": "x"},
        {"X-Object-Meta-Empty": ""},
        {"X-Delete-After": "600"},
        {"X-Remove-Delete-At": "x"},
        {"ETag": "abc", "X-Object-Meta-D": "1"},
        {},
    ):
        site.ask("POST", "/c/o", headers)
        site.ask("HEAD", "/c/o")
    site.ask("GET", "/c?format=json")


def conditions(site: Site) -> None:
    """Conditional requests."""
    site.quietly("PUT", "/c")
    site.quietly("PUT", "/c/o", {}, b"hello world")
    for headers in (
        *(
            {"If-Match": ETAG},
            {"If-Match": f'"{ETAG}"'},
            {"If-Match": "*"},
            {"If-Match": "abc"},
            {"If-Match": f"a, {ETAG}"},
        ),
        *({"If-None-Match": ETAG}, {"If-None-Match": "*"}, {"If-None-Match": "abc"}, {"If-None-Match": f'a, "{ETAG}"'}),
        *({"If-Modified-Since": PAST}, {"If-Modified-Since": FUTURE}, {"If-Modified-Since": "nonsense"}),
        *({"If-Unmodified-Since": PAST}, {"If-Unmodified-Since": FUTURE}, {"If-Unmodified-Since": "nonsense"}),
        *({"If-Match": ETAG, "If-Modified-Since": FUTURE}, {"If-None-Match": "abc", "If-Modified-Since": FUTURE}),
    ):
        site.ask("GET", "/c/o", headers)
        site.ask("HEAD", "/c/o", headers)
        site.ask("GET", "/c/none", headers)


def ranges(site: Site) -> None:
    """Parts of an object."""
    site.quietly("PUT", "/c")
    site.quietly("PUT", "/c/o", {"Content-Type": "text/plain"}, b"hello world")
    site.quietly("PUT", "/c/zero", {}, b"")
    for text in (
        *("bytes=0-4", "bytes=6-", "bytes=-5", "bytes=0-0", "bytes=10-10", "bytes=10-99", "bytes=11-", "bytes=99-100"),
        *(
            "bytes=-0",
            "bytes=-99",
            "bytes=5-4",
            "bytes=",
            "bytes=x-y",
            "chunks=0-4",
            "bytes=0-4,6-",
            "bytes=0-1,3-4,-2",
        ),
        *(
            "bytes=0-1,99-",
            "bytes=99-,100-",
            "bytes=0-4,0-4",
            "bytes=0-,0-",
            "bytes = 0-4",
            "bytes=0-4,",
            "bytes=0 - 4",
        ),
    ):
        site.ask("GET", "/c/o", {"Range": text})
        site.ask("HEAD", "/c/o", {"Range": text})
        site.ask("GET", "/c/zero", {"Range": text})
    site.ask("GET", "/c/o", {"Range": f"bytes={','.join(f'{at}-{at}' for at in range(51))}"})
    site.ask("GET", "/c/o", {"Range": "bytes=0-4", "If-Range": ETAG})
    site.ask("GET", "/c/o", {"Range": "bytes=0-4", "If-Range": "abc"})
    site.ask("GET", "/c/o", {"Range": "bytes=0-4", "If-Match": "abc"})


def copies(site: Site) -> None:
    """Copies that the store makes itself."""
    site.quietly("PUT", "/c")
    site.quietly("PUT", "/d")
    site.quietly(
        "PUT", "/c/o%20%C3%A9", {"Content-Type": "text/x", "X-Object-Meta-A": "1", "Content-Encoding": "x"}, b"abc"
    )
    name = "o%20%C3%A9"
    for headers in (
        {},
        {"X-Object-Meta-B": "2"},
        {"X-Object-Meta-B": "2", "X-Fresh-Metadata": "true"},
        {"Content-Type": "q/r"},
    ):
        site.ask("COPY", f"/c/{name}", {"Destination": "/d/copied"} | headers)
        site.ask("GET", "/d/copied")
        site.ask("PUT", "/d/put", {"X-Copy-From": f"/c/{name}"} | headers, b"")
        site.ask("GET", "/d/put")
    for destination in ("d/x", "/d/%E2%98%83", "d", "/none/x", "", "/d/", "/d/x?y"):
        site.ask("COPY", f"/c/{name}", {"Destination": destination})
    for source in ("/c/none", "/none/o", "c", "", f"c/{name}", f"/c/{name}?x=y"):
        site.ask("PUT", "/d/put", {"X-Copy-From": source}, b"")
    site.ask("COPY", f"/c/{name}")
    site.ask("COPY", "/c/none", {"Destination": "/d/x"})
    site.ask("COPY", f"/c/{name}", {"Destination": f"/c/{name}", "X-Object-Meta-Self": "1"})
    site.ask("HEAD", f"/c/{name}")
    site.ask("PUT", "/d/put", {"X-Copy-From": f"/c/{name}"}, b"body")
    site.ask("PUT", "/d/part", {"X-Copy-From": f"/c/{name}", "Range": "bytes=1-1"}, b"")
    site.ask("GET", "/d/part")
    site.ask("PUT", "/d/cond", {"X-Copy-From": f"/c/{name}", "X-Copy-From-If-Match": "x", "If-Match": "x"}, b"")
    other = {"Destination": "/x/o", "Destination-Account": "AUTH_test2"}
    site.quietly("PUT", "/v1/AUTH_test2/x", {}, user="test2:tester2")
    site.ask("COPY", f"/c/{name}", other)
    site.ask("COPY", f"/c/{name}", other, user="admin:admin")
    site.ask("PUT", "/d/from", {"X-Copy-From": "/x/o", "X-Copy-From-Account": "AUTH_test2"}, b"")
    site.ask("PUT", "/d/from", {"X-Copy-From": "/x/o", "X-Copy-From-Account": "AUTH_test2"}, b"", user="admin:admin")
    site.quietly("DELETE", "/v1/AUTH_test2/x/o", user="test2:tester2")
    site.quietly("DELETE", "/v1/AUTH_test2/x", user="test2:tester2")


def expiry(site: Site) -> None:
    """Objects that expire."""
    site.quietly("PUT", "/c")
    for headers in (
        *({"X-Delete-After": "600"}, {"X-Delete-At": "4102444800"}, {"X-Delete-At": "1"}, {"X-Delete-After": "-1"}),
        *({"X-Delete-After": "x"}, {"X-Delete-At": "x"}, {"X-Delete-After": "0"}, {"X-Delete-At": "4102444800.5"}),
        *({"X-Delete-After": "1.5"}, {"X-Delete-At": "4102444800", "X-Delete-After": "600"}, {"X-Delete-At": ""}),
    ):
        site.ask("PUT", "/c/o", headers, b"x")
        site.ask("HEAD", "/c/o")
        site.quietly("PUT", "/c/p", {}, b"x")
        site.ask("POST", "/c/p", headers)
        site.ask("HEAD", "/c/p")


def quotas(site: Site) -> None:
    """Quotas."""
    site.ask("PUT", "/c", {"X-Container-Meta-Quota-Bytes": "x"})
    site.ask("PUT", "/c", {"X-Container-Meta-Quota-Count": "x"})
    site.ask("PUT", "/c", {"X-Container-Meta-Quota-Bytes": "10"})
    site.ask("PUT", "/c/small", {}, b"12345")
    site.ask("PUT", "/c/much", {}, bytes(11))
    site.ask("PUT", "/c/rest", {}, bytes(6))
    site.ask("COPY", "/c/small", {"Destination": "/c/again"})
    site.ask("COPY", "/c/small", {"Destination": "/c/more"})
    site.ask("POST", "/c", {"X-Container-Meta-Quota-Bytes": "", "X-Container-Meta-Quota-Count": "2"})
    site.ask("PUT", "/c/third", {}, b"")
    site.ask("POST", "/c", {"X-Container-Meta-Quota-Count": "-1"})
    site.ask("HEAD", "/c")
    site.ask("POST", "", {"X-Account-Meta-Quota-Bytes": "5"})
    site.ask("POST", "", {"X-Account-Meta-Quota-Bytes": "x"}, user="admin:admin")


def symlinks(site: Site) -> None:
    """Objects that stand for others."""
    site.quietly("PUT", "/c")
    site.quietly("PUT", "/c/target", {"Content-Type": "text/plain", "X-Object-Meta-A": "1"}, b"hello world")
    typed = {"Content-Type": "application/symlink"}
    for name, headers in (
        *(("link", {"X-Symlink-Target": "c/target"}), ("far", {"X-Symlink-Target": "c/link"})),
        *(("static", {"X-Symlink-Target": "c/target", "X-Symlink-Target-Etag": ETAG}),),
        *(("wrong", {"X-Symlink-Target": "c/target", "X-Symlink-Target-Etag": "0" * 32}),),
        *(("dangling", {"X-Symlink-Target": "c/none"}), ("self", {"X-Symlink-Target": "c/self"})),
        *(
            ("bad", {"X-Symlink-Target": "c"}),
            ("slash", {"X-Symlink-Target": "/c/target"}),
            ("empty", {"X-Symlink-Target": ""}),
        ),
        *(("account", {"X-Symlink-Target": "c/target", "X-Symlink-Target-Account": "AUTH_test2"}),),
        *(("deep", {"X-Symlink-Target": "c/far"}), ("deeper", {"X-Symlink-Target": "c/deep"})),
    ):
        site.ask("PUT", f"/c/{name}", typed | headers, b"")
        site.ask("GET", f"/c/{name}")
        site.ask("HEAD", f"/c/{name}")
        site.ask("GET", f"/c/{name}?symlink=get")
    site.ask("PUT", "/c/full", {"X-Symlink-Target": "c/target"}, b"body")
    site.ask("GET", "/c/link", {"Range": "bytes=0-4"})
    site.ask("GET", "/c/link", {"If-None-Match": ETAG})
    site.ask("POST", "/c/link", {"X-Object-Meta-B": "2"})
    site.ask("POST", "/c/target", {"X-Symlink-Target": "c/x"})
    site.ask("COPY", "/c/link", {"Destination": "/c/copied"})
    site.ask("HEAD", "/c/copied?symlink=get")
    site.ask("COPY", "/c/link?symlink=get", {"Destination": "/c/linked"})
    site.ask("HEAD", "/c/linked?symlink=get")
    site.ask("DELETE", "/c/link")
    site.ask("HEAD", "/c/target")
    site.ask("GET", "/c?format=json")


def versions(site: Site) -> None:
    """Older versions kept elsewhere: stack and history."""
    for header, name in (("X-Versions-Location", "stack"), ("X-History-Location", "history")):
        site.quietly("PUT", f"/old-{name}")
        site.ask("PUT", f"/{name}", {header: f"old-{name}"})
        site.ask("HEAD", f"/{name}")
        for body in (b"one", b"two", b"three"):
            site.ask("PUT", f"/{name}/o", {}, body)
        site.ask("GET", f"/old-{name}?format=json")
        for _ in range(4):
            site.ask("DELETE", f"/{name}/o")
            site.ask("GET", f"/{name}/o")
            site.ask("GET", f"/old-{name}")
        site.ask("POST", f"/{name}", {f"X-Remove-{header[2:]}": "x"})
        site.ask("HEAD", f"/{name}")
    site.ask("PUT", "/both", {"X-Versions-Location": "a", "X-History-Location": "b"})
    site.ask("PUT", "/slash", {"X-Versions-Location": "a/b"})
    site.ask("PUT", f"{ACCOUNT}/gone", {"X-Versions-Location": "nowhere"})
    site.ask("PUT", "/gone/o", {}, b"1")
    site.ask("PUT", "/gone/o", {}, b"2")


def object_versioning(site: Site) -> None:
    """Every version of every object of a container, by id."""
    site.ask("PUT", "/v", {"X-Versions-Enabled": "true"})
    site.ask("HEAD", "/v")
    first = site.ask("PUT", "/v/o", {"X-Object-Meta-A": "1"}, b"one").header("X-Object-Version-Id")
    site.ask("PUT", "/v/o", {}, b"second")
    site.ask("GET", "/v/o")
    site.ask("HEAD", "/v/o")
    for query in ("", "?format=json", "?versions&format=json", "?versions&format=json&limit=1", "?versions&prefix=x"):
        site.ask("GET", f"/v{query}")
    for version_id in (first, "null", "nonsense", "1000000000.00000"):
        for method in ("GET", "HEAD"):
            site.ask(method, f"/v/o?version-id={version_id}")
    site.ask("POST", "/v/o", {"X-Object-Meta-B": "2"})
    site.ask("COPY", f"/v/o?version-id={first}", {"Destination": "/v/copied"})
    site.ask("DELETE", "/v/o")
    site.ask("GET", "/v/o")
    site.ask("DELETE", "/v/o")
    site.ask("GET", "/v?versions&format=json")
    site.ask("PUT", f"/v/o?version-id={first}", {}, b"")
    site.ask("GET", "/v/o")
    site.ask("DELETE", "/v")
    site.ask("POST", "/v", {"X-Versions-Enabled": "false"})
    site.ask("HEAD", "/v")
    site.ask("PUT", "/v/o", {}, b"third")
    site.ask("GET", "/v?versions&format=json")
    site.ask("DELETE", "/v/o")
    site.ask("PUT", "/v", {"X-Versions-Enabled": "true", "X-Versions-Location": "old"})
    site.ask("DELETE", f"/v/o?version-id={first}")
    site.ask("DELETE", f"/v/o?version-id={first}")
    for entry in json.loads(site.quietly("GET", "/v?versions&format=json").body):
        site.quietly("DELETE", f"/v/{entry['name']}?version-id={entry['version_id']}")
    site.ask("GET", "/v?versions&format=json")
    site.ask("DELETE", "/v")
