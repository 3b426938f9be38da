"""What is asked of listings. Source: Swift API reference, "Pagination", "Pseudo-hierarchical folders", "Serialized"."""

from testkit.swift_scenarios.site import Site

OBJECTS = ("a", "photos", "photos/", "photos/1", "photos/2", "photos/x/1", "photos1", "q%3C%26%22", "z", "%C3%A9")
QUERIES = (
    "",
    "limit=3",
    "limit=0",
    "limit=x",
    "limit=-1",
    "limit=10000",
    "limit=10001",
    "marker=photos/1",
    "marker=photos&limit=2",
    "end_marker=photos/2",
    "marker=b&end_marker=photos/2",
    "prefix=photos",
    "prefix=photos/",
    "prefix=none",
    "delimiter=/",
    "delimiter=/&limit=3",
    "delimiter=/&marker=photos/",
    "delimiter=/&marker=photos/1",
    "delimiter=ot",
    "delimiter=os/",
    "delimiter=/&prefix=photos",
    "delimiter=/&prefix=photos/",
    "delimiter=/&prefix=photos/&marker=photos/x/",
    "delimiter=/&end_marker=photos/1",
    "path=photos",
    "path=photos/",
    "path=photos/x",
    "path=",
    "path=none",
    "path=photos&delimiter=x",
    "reverse=true",
    "reverse=1&limit=2",
    "reverse=false",
    "reverse=true&marker=photos/1",
    "reverse=true&end_marker=photos/1",
    "reverse=true&marker=z&end_marker=photos",
    "reverse=true&delimiter=/",
    "reverse=true&delimiter=/&marker=photos/",
    "reverse=true&delimiter=/&marker=photos/1",
    "reverse=true&delimiter=/&end_marker=photos/1",
    "reverse=true&prefix=photos/&delimiter=/",
    "reverse=true&path=photos",
    "format=json",
    "format=json&delimiter=/",
    "format=json&prefix=none",
    "format=xml",
    "format=xml&delimiter=/",
    "format=xml&prefix=none",
    "format=plain",
    "format=JSON",
    "format=other",
    "marker=%FF",
    "prefix=%FF",
    "delimiter=%FF",
    "end_marker=%C3%A9",
    "marker=%C3",
)
ACCEPTS = (
    "application/json",
    "application/xml",
    "text/xml",
    "text/plain",
    "*/*",
    "application/*",
    "text/*;q=0.5, application/json",
    "application/xml;q=0.5, text/plain;q=0.2",
    "image/png",
    "nonsense",
    "",
)


def containers(site: Site) -> None:
    """A container's objects, in every way."""
    site.quietly("PUT", "/shelf")
    for name in OBJECTS:
        site.quietly("PUT", f"/shelf/{name}", {"Content-Type": "text/plain"}, b"12345")
    for query in QUERIES:
        site.ask("GET", f"/shelf?{query}" if query else "/shelf")
    for accept in ACCEPTS:
        site.ask("GET", "/shelf?limit=1", {"Accept": accept})
    for query in ("", "?format=json", "?format=xml"):
        site.ask("HEAD", f"/shelf{query}")
    site.quietly("PUT", "/empty")
    for query in ("", "?format=json", "?format=xml", "?delimiter=/&prefix=a"):
        site.ask("GET", f"/empty{query}")


def accounts(site: Site) -> None:
    """An account's containers, in every way."""
    for query in ("", "?format=json", "?format=xml", "?format=xml&limit=0"):
        site.ask("GET", query)
        site.ask("HEAD", query)
    for name in ("alpha", "beta", "beta-1", "beta-2", "gamma%26%C3%A9"):
        site.quietly("PUT", f"/{name}")
    for query in (
        *("", "limit=2", "limit=0", "limit=10001", "marker=beta", "end_marker=beta-1", "prefix=beta", "prefix=none"),
        *("delimiter=-", "delimiter=-&format=json", "delimiter=-&format=xml", "prefix=beta-&delimiter=-", "reverse=on"),
        *("reverse=1&marker=beta-1", "reverse=1&delimiter=-", "format=json", "format=json&limit=1", "format=xml"),
        *("format=other", "marker=%FF", "prefix=%FF", "format=json&prefix=none", "format=xml&prefix=none"),
    ):
        site.ask("GET", f"?{query}" if query else "")
    for accept in ACCEPTS:
        site.ask("GET", "?limit=1", {"Accept": accept})
