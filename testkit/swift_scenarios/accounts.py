"""What is asked of accounts, containers, their names and metadata. Source: Swift API reference."""

import uuid

from testkit.swift_scenarios.site import ACCOUNT, Site

ADMIN = "admin:admin"


def auth(site: Site) -> None:
    """Tokens: every way to ask for one, and what is wrong."""
    given = {"X-Auth-User": "test:tester", "X-Auth-Key": "testing"}
    site.ask("GET", "//auth/v1.0", given, user=None)
    site.ask("GET", "//auth/v1.0", {"X-Storage-User": "test:tester", "X-Storage-Pass": "testing"}, user=None)
    site.ask("GET", "//auth/v1/test/auth", {"X-Storage-User": "tester", "X-Storage-Pass": "testing"}, user=None)
    site.ask("GET", "//auth/v1.0", given | {"X-Auth-Key": "wrong"}, user=None)
    site.ask("GET", "//auth/v1.0", {"X-Auth-User": "nobody:tester", "X-Auth-Key": "x"}, user=None)
    site.ask("GET", "//auth/v1.0", {"X-Auth-User": "tester", "X-Auth-Key": "testing"}, user=None)
    site.ask("GET", "//auth/v1.0", user=None)
    site.ask("POST", "//auth/v1.0", given, user=None)
    site.ask("GET", "//auth/v2.0", given, user=None)
    site.ask("GET", "//auth/", given, user=None)
    for headers in ({}, {"X-Auth-Token": "AUTH_tkwrong"}, {"X-Auth-Token": "junk"}):
        for method in ("GET", "HEAD", "POST", "PUT", "DELETE"):
            site.ask(method, "", headers, user=None)
    site.ask("GET", "", {"X-Storage-Token": site.token("test:tester")}, user=None)
    for user in ("test:tester3", "test2:tester2", ADMIN, "admin:auditor"):
        site.ask("HEAD", "", user=user)
    site.ask("PUT", "/auditors", user="admin:auditor")
    for path in ("/v1/AUTH_", "/v1/OTHER_x", "/v1/AUTH_nobody", "/v1/AUTH_nobody/c", "/v1/AUTH_nobody/c/o"):
        site.ask("GET", path, user=ADMIN)
        site.ask("GET", path, user=None)


def accounts(site: Site) -> None:
    """Accounts: PUT, POST, HEAD, DELETE and other methods."""
    site.ask("PUT", "")
    site.ask("DELETE", "")
    for method in ("PATCH", "COPY", "OPTIONS"):
        site.ask(method, "")
    site.quietly("PUT", "/first")
    site.ask("HEAD", "")
    site.ask("POST", "", {"X-Account-Meta-Colour": "blue", "X-Account-Meta-Shape": "round"})
    site.ask("HEAD", "")
    site.ask("POST", "", {"X-Remove-Account-Meta-Colour": "x", "X-Account-Meta-Shape": ""})
    site.ask("HEAD", "")
    site.ask("POST", "", {"X-Account-Meta-Temp-Url-Key": "key", "X-Account-Meta-Quota-Bytes": "1"})
    site.ask("HEAD", "")
    site.ask("POST", "", {"X-Account-Meta-Quota-Bytes": "1"}, user=ADMIN)
    site.ask("POST", "", {"X-Account-Meta-Quota-Bytes": ""}, user=ADMIN)
    made = f"/v1/AUTH_made{uuid.uuid4().hex}"  # a deleted account cannot be made again
    site.ask("PUT", made, user=ADMIN)
    site.ask("PUT", made, {"X-Account-Meta-A": "1"}, user=ADMIN)
    site.ask("HEAD", made, user=ADMIN)
    site.ask("GET", made + "?format=json", user=ADMIN)
    site.ask("DELETE", made, user=ADMIN)
    for method in ("GET", "HEAD", "POST", "DELETE"):
        site.ask(method, made, user=ADMIN)
    site.ask("GET", made + "/c", user=ADMIN)


def containers(site: Site) -> None:
    """Containers: PUT, POST, HEAD, DELETE and other methods; storage policies."""
    site.ask("HEAD", "/box")
    site.ask("GET", "/box")
    site.ask("POST", "/box")
    site.ask("DELETE", "/box")
    site.ask("PUT", "/box", {"X-Container-Meta-Colour": "blue", "X-Container-Meta-Shape": "round"})
    site.ask("HEAD", "/box")
    site.ask("PUT", "/box", {"X-Container-Meta-Colour": "red"})
    site.ask("POST", "/box", {"X-Remove-Container-Meta-Shape": "x", "X-Container-Meta-Size": "7"})
    site.ask("HEAD", "/box")
    site.ask("POST", "/box", {"X-Container-Meta-Size": "", "X-Container-Meta-Two-Words": "a b"})
    site.ask("GET", "/box")
    site.ask("GET", "/box?format=json")
    site.quietly("PUT", "/box/o", {}, b"12345")
    site.ask("HEAD", "/box")
    site.ask("DELETE", "/box")
    site.quietly("DELETE", "/box/o")
    site.ask("DELETE", "/box")
    site.ask("DELETE", "/box")
    site.ask("PUT", "/box")
    site.ask("HEAD", "/box")
    for method in ("PATCH", "COPY", "OPTIONS"):
        site.ask(method, "/box")
    for policy in ("Policy-0", "policy-0", "none", ""):
        site.ask("PUT", "/policy", {"X-Storage-Policy": policy})
    site.ask("POST", "/policy", {"X-Storage-Policy": "Policy-0"})
    site.ask("HEAD", "/policy")


def names(site: Site) -> None:
    """Names of all kinds, and paths that are none."""
    for path in ("/", "/v1", "/v1/", "/v1//c", "/v2/AUTH_test", "/v2", "/elsewhere", "/info/x", "/v1.0/AUTH_test"):
        site.ask("GET", f"/{path}")
    for path in ("//", "//x", "//v1/AUTH_test", "/%2Fv1/AUTH_test", "///"):
        site.ask("GET", f"/{path}")
    site.ask("GET", "//v1/AUTH_x%22%0AContent-Length%3A%201%0A%0A%3Cb%3E%20y", user=None)
    for path in (
        "//o",
        "/c%00",
        "/c%FF",
        "/c%2Fd",
        f"/{'c' * 257}",
        f"/{'c' * 256}",
        f"/{'%C3%A9' * 256}",
        "/%E2%98%83",
        "/a%20b",
        "/.",
    ):
        site.ask("PUT", path)
    site.ask("GET", "/v1/AUTH_%FF")
    site.ask("GET", "?format=json")
    site.ask("GET", "?format=xml")
    site.quietly("PUT", "/c")
    for name in (
        "%E2%98%83/%C3%A9",
        "a%2Fb",
        "a//b",
        "./x",
        "../x",
        "per%2525cent",
        "q%3Fx%3D1",
        "%23",
        "%20",
        "x%0Ay",
    ):
        site.ask("PUT", f"/c/{name}", {}, b"x")
        site.ask("GET", f"/c/{name}")
    for name in ("o" * 1025, "o" * 1024, "%C3%A9" * 512, "%C3%A9" * 513, "%FF", "a%00b"):
        site.ask("PUT", f"/c/{name}", {}, b"x")
    site.ask("GET", "/c")
    site.ask("GET", "/c/")
    site.ask("GET", "/c?format=json")
    site.ask("GET", "/c?format=xml")


def metadata(site: Site) -> None:
    """How much metadata there may be."""
    site.quietly("PUT", "/c")
    for kind, path in (("Account", ""), ("Container", "/c"), ("Object", "/c/o")):
        if kind == "Object":
            site.quietly("PUT", path, {}, b"x")
        prefix = f"X-{kind}-Meta-"
        for name, value in (
            *(
                ("n" * 128, "v"),
                ("n" * 129, "v"),
                ("A", "v" * 256),
                ("A", "v" * 257),
                ("", "v"),
                ("Uni", "caf\xc3\xa9"),
            ),
            *(("Uni", "caf\xe9"), ("Under_Score", "v"), ("Empty", "")),
        ):
            site.ask("POST", path, {prefix + name: value})
        site.ask("HEAD", path)
        for many in (
            *({str(number): "v" for number in range(count)} for count in (90, 91)),
            *({f"{number:02}": "v" * 250 for number in range(count)} for count in (8, 17)),
        ):
            _forget(site, path, ["N" * 128, "A", "Uni", "Under-Score", *many])
            site.ask("POST", path, {prefix + name: value for name, value in many.items()})
            _forget(site, path, list(many))
    site.ask("POST", "/c", {f"X-Container-Meta-{number}": "v" for number in range(60)})
    site.ask("POST", "/c", {f"X-Container-Meta-B{number}": "v" for number in range(40)})
    site.ask("PUT", "/c/o", {"X-Object-Meta-A": "v" * 257}, b"x")
    site.ask("PUT", "/c/o", {"X-Object-Meta-A": "v", "X-Object-Sysmeta-B": "v", "X-Backend-C": "v"}, b"x")
    site.ask("HEAD", "/c/o")


def _forget(site: Site, path: str, names: list[str]) -> None:
    kind = {0: "Account", 1: "Container"}.get(path.count("/"), "Object")
    for start in range(0, len(names), 40):
        site.quietly("POST", path, {f"X-Remove-{kind}-Meta-{name}": "x" for name in names[start : start + 40]})


def pages(site: Site) -> None:
    """Pages that need no token."""
    for method in ("GET", "HEAD", "POST", "OPTIONS"):
        site.ask(method, "//healthcheck", user=None)
        if method != "GET":
            site.ask(method, "//info", user=None)
    site.ask("PUT", "//info", user=None)
    site.ask("OPTIONS", ACCOUNT, user=None)
