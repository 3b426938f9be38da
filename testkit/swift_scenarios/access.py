"""What is asked about who may do what. Source: Swift API reference, "Access Control Lists", "CORS"."""

import itertools

from testkit.swift_scenarios.site import Site

PLAIN_USER, STRANGER = "test:tester3", "test2:tester2"


def lists(site: Site) -> None:
    """How access lists are spelled."""
    site.quietly("PUT", "/c")
    for text in (
        *(".r:*", ".r:*,.rlistings", ".R:*", ".ref:.example.com,.referrer:-bad.example.com", ".r:*.example.com", ".r:"),
        *(".r:.", ".r:-", ".x:y", " a : b , c ,,", ".rlistings", "test:tester3", "test", ".r: - x.com", "a,.r:", ","),
        *("test:tester3,.r:*", ""),
    ):
        site.ask("POST", "/c", {"X-Container-Read": text})
        site.ask("HEAD", "/c")
    for text in (".r:*", "test:tester3", ".x:y"):
        site.ask("POST", "/c", {"X-Container-Write": text})
    site.ask("POST", "/c", {"X-Remove-Container-Write": "x"})
    site.ask("HEAD", "/c")
    site.ask("PUT", "/d", {"X-Container-Read": "nonsense:,.r:x", "X-Container-Write": ".q:x"})
    site.ask("HEAD", "/d")


def containers(site: Site) -> None:
    """What access lists of containers allow."""
    site.quietly("PUT", "/c")
    site.quietly("PUT", "/c/o", {"X-Object-Meta-A": "1"}, b"hello")
    for lists in (
        *({}, {"X-Container-Read": "test:tester3"}, {"X-Container-Read": "test2"}, {"X-Container-Read": ".r:*"}),
        *({"X-Container-Read": ".r:*,.rlistings"}, {"X-Container-Write": "test:tester3,test2:tester2"}),
    ):
        site.quietly("POST", "/c", {"X-Container-Read": "", "X-Container-Write": ""} | lists)
        for user in (PLAIN_USER, STRANGER, None):
            for method, path in itertools.product(("GET", "HEAD"), ("/c", "/c/o", "/c/none")):
                site.ask(method, path, user=user)
            for method, path in (("PUT", "/c/new"), ("POST", "/c/o"), ("DELETE", "/c/none"), ("POST", "/c")):
                site.ask(method, path, {}, b"" if method == "PUT" else None, user=user)
            site.ask("PUT", "/c", user=user)
            site.ask("DELETE", "/c", user=user)
    site.quietly("POST", "/c", {"X-Container-Read": ".r:.example.com,.r:-bad.example.com", "X-Container-Write": ""})
    for referer in ("http://www.example.com/x", "http://bad.example.com", "http://example.com", "http://o.com", "junk"):
        site.ask("GET", "/c/o", {"Referer": referer}, user=None)
    site.ask("GET", "/c/o", user=None)
    site.quietly("POST", "/c", {"X-Container-Read": ".r:*", "X-Container-Meta-Temp-Url-Key": "k"})
    site.ask("GET", "/c/o", {"X-Auth-Token": "AUTH_tkwrong"}, user=None)
    site.ask("GET", "/c/o", {"X-Auth-Token": "junk"}, user=None)
    site.ask("GET", "/none/o", user=None)
    site.ask("GET", "/none/o", user=STRANGER)
    site.ask("PUT", "/none/o", {}, b"", user=STRANGER)
    site.ask("PUT", "/none/o", {}, b"")


def accounts(site: Site) -> None:
    """Access lists of accounts."""
    header = "X-Account-Access-Control"
    for text in ("x", '{"admin":"x"}', '{"foo":["x"]}', '{"admin":[1]}', "[]", "{}", "", "null"):
        site.ask("POST", "", {header: text})
    site.quietly("PUT", "/c")
    site.quietly("PUT", "/c/o", {}, b"x")
    for text in (
        '{"read-only":["test2:tester2"],"admin":[]}',
        '{"read-write":["test2"]}',
        '{"admin":["test2:tester2"]}',
    ):
        site.ask("POST", "", {header: text})
        site.ask("HEAD", "")
        for method, path in itertools.product(("GET", "HEAD"), ("", "/c", "/c/o")):
            site.ask(method, path, user=STRANGER)
        site.ask("POST", "", {"X-Account-Meta-Q": "1"}, user=STRANGER)
        site.ask("PUT", "/c/p", {}, b"x", user=STRANGER)
        site.ask("PUT", "/new", {"X-Container-Read": ".r:*", "X-Container-Meta-Z": "1"}, user=STRANGER)
        site.ask("POST", "/c", {"X-Container-Meta-Z": "1"}, user=STRANGER)
        site.ask("HEAD", "/new")
        site.ask("DELETE", "/new", user=STRANGER)
        site.quietly("DELETE", "/new")
        site.ask("HEAD", "", user="test:tester3")
    site.ask("POST", "", {header: ""})
    site.ask("HEAD", "")


def cors(site: Site) -> None:
    """Cross-origin requests."""
    origin, asks = {"Origin": "http://a.com"}, {"Access-Control-Request-Method": "GET"}
    meta = "X-Container-Meta-Access-Control-"
    site.quietly(
        "PUT",
        "/some",
        {
            f"{meta}Allow-Origin": "http://a.com http://b.com",
            f"{meta}Max-Age": "60",
            f"{meta}Expose-Headers": "X-Foo X-Bar",
            "X-Container-Read": ".r:*,.rlistings",
        },
    )
    site.quietly("PUT", "/all", {f"{meta}Allow-Origin": "*"})
    site.quietly("PUT", "/nobody")
    for name in ("some", "all", "nobody"):
        site.quietly("PUT", f"/{name}/o", {"X-Object-Meta-A": "1"}, b"x")
    for name, path in itertools.product(("some", "all", "nobody", "absent"), ("", "/o")):
        site.ask("OPTIONS", f"/{name}{path}", origin | asks, user=None)
    for headers in (
        origin | asks | {"Access-Control-Request-Headers": "X-Auth-Token, x-foo"},
        {"Origin": "http://c.com"} | asks,
        origin,
        origin | {"Access-Control-Request-Method": "COPY"},
        origin | {"Access-Control-Request-Method": "POST"},
        asks,
        {},
    ):
        site.ask("OPTIONS", "/some/o", headers, user=None)
        site.ask("OPTIONS", "/all/o", headers, user=None)
    site.ask("OPTIONS", "", origin | asks, user=None)
    for name, other in itertools.product(("some", "all", "nobody"), ("http://a.com", "http://z.com")):
        for path in ("", "/o", "/none"):
            site.ask("GET", f"/{name}{path}", {"Origin": other})
    site.ask("GET", "", origin)
    site.ask("GET", "/all/o", origin, user=None)
    site.ask("PUT", "/all/o", origin, b"q")
