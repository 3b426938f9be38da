"""Versions in another container, over sockets. Expected answers are those that Swift 2.30 gave."""

import json
import re

import pytest

from testkit.loopback_store import Client, LoopbackStore


@pytest.fixture(scope="module")
def client(shared_store: LoopbackStore) -> Client:
    return Client(shared_store)


def list_versions(client: Client, container: str) -> list[tuple[str, int, str]]:
    """Name (its timestamp as T), bytes and type of each object."""
    entries = json.loads(client(f"GET {container}?format=json").body)
    names = [re.sub(r"/\d{10}\.\d{5}$", "/T", entry["name"]) for entry in entries]
    return [(name, entry["bytes"], entry["content_type"]) for name, entry in zip(names, entries, strict=True)]


def test_a_stack_brings_back_what_was(client: Client) -> None:
    client("PUT stack", {"X-Versions-Location": "stack-old"})
    assert client("HEAD stack").headers["x-versions-location"] == "stack-old"
    assert client("PUT stack/o", {"Content-Type": "a/1", "X-Object-Meta-A": "1"}, b"one").status == 201
    assert client("PUT stack/o", body=b"lost").status == 412  # there is nowhere to keep the first
    client("PUT stack-old")
    for number, body in ((2, b"two!"), (3, b"three")):
        assert client("PUT stack/o", {"Content-Type": f"a/{number}"}, body).status == 201
    assert list_versions(client, "stack-old") == [("001o/T", 3, "a/1"), ("001o/T", 4, "a/2")]
    assert client("POST stack/o", {"X-Object-Meta-B": "1"}).status == 202
    for body, headers in ((b"two!", {}), (b"one", {"x-object-meta-a": "1"})):
        assert client("DELETE stack/o").status == 204
        found = client("GET stack/o")
        assert found.body == body
        assert headers.items() <= dict(found.headers).items()
    assert [client("DELETE stack/o").status, client("GET stack/o").status] == [204, 404]
    assert list_versions(client, "stack-old") == []
    assert client("DELETE stack/o").status == 404


def test_a_history_keeps_all_and_marks_deletions(client: Client) -> None:
    client("PUT history-old")
    client("PUT history", {"X-History-Location": "history-old"})
    for number in (1, 2):
        client("PUT history/o", {"Content-Type": f"a/{number}"}, b"one")
    assert [client("DELETE history/o").status, client("DELETE history/o").status] == [204, 404]
    mark = ("001o/T", 0, "application/x-deleted;swift_versions_deleted=1")
    assert list_versions(client, "history-old") == [("001o/T", 3, "a/1"), ("001o/T", 3, "a/2"), mark, mark]
    assert client("PUT history/o", body=b"again").status == 201
    assert len(list_versions(client, "history-old")) == 4
    client("POST history", {"X-Versions-Location": "history-old"})  # a stack from here on: marks are passed over
    assert client("DELETE history/o").status == 204
    assert client("GET history/o").status == 404


def test_large_objects_and_links_come_back_as_they_were(client: Client) -> None:
    client("PUT kinds-old")
    client("PUT kinds", {"X-Versions-Location": "kinds-old"})
    client("PUT kinds-parts")
    client("PUT kinds-parts/1", body=b"12345")
    client("PUT kinds/slo?multipart-manifest=put", body=b'[{"path": "/kinds-parts/1"}]')
    client("PUT kinds/link", {"X-Symlink-Target": "kinds-parts/1"}, b"")
    before = client("HEAD kinds/slo").headers
    for name in ("slo", "link"):
        client(f"PUT kinds/{name}", body=b"plain")
    assert list_versions(client, "kinds-old") == [
        ("003slo/T", 5, "application/octet-stream"),
        ("004link/T", 0, "application/symlink"),
    ]
    for name in ("slo", "link"):
        assert client(f"DELETE kinds/{name}").status == 204
    after = client("HEAD kinds/slo").headers
    assert after["x-static-large-object"] == "True"
    assert (after["etag"], after["content-length"], client("GET kinds/slo").body) == (before["etag"], "5", b"12345")
    assert client("HEAD kinds/link?symlink=get").headers["x-symlink-target"] == "kinds-parts/1"


@pytest.mark.parametrize(
    ("headers", "status", "shown"),
    [
        ({"X-History-Location": "b"}, 204, {"x-history-location": "b"}),
        ({"X-Versions-Location": "%41"}, 204, {"x-versions-location": "%41"}),
        ({"X-Versions-Location": ""}, 204, {}),
        ({"X-Remove-Versions-Location": "x"}, 204, {}),
        ({"X-Remove-Versions-Location": "x", "X-Versions-Location": "c"}, 204, {"x-versions-location": "c"}),
        ({"X-Versions-Location": "a/b"}, 412, {"x-versions-location": "a"}),
        ({"X-Versions-Location": "a", "X-History-Location": "b"}, 400, {"x-versions-location": "a"}),
    ],
)
def test_where_versions_go(client: Client, headers: dict[str, str], status: int, shown: dict[str, str]) -> None:
    client("PUT where", {"X-Versions-Location": "a"})
    assert client("POST where", headers).status == status
    found = client("HEAD where").headers
    assert {name: value for name, value in found.items() if name.endswith("-location")} == shown


def test_who_may_not_write_keeps_no_version(client: Client, shared_store: LoopbackStore) -> None:
    other = Client(shared_store, "other:someone", "secret")
    client("PUT guarded-old")
    client("PUT guarded", {"X-Versions-Location": "guarded-old"})
    client("PUT guarded/o", body=b"one")
    assert other("PUT guarded/o", body=b"two", account="AUTH_test").status == 403
    assert list_versions(client, "guarded-old") == []
    client("POST guarded", {"X-Container-Write": "other:someone"})
    assert other("PUT guarded/o", body=b"two", account="AUTH_test").status == 201
    assert list_versions(client, "guarded-old") == [("001o/T", 3, "application/octet-stream")]


def test_a_mark_of_another_mode_is_one_step_of_the_stack(client: Client) -> None:
    client("PUT steps-old")
    client("PUT steps", {"X-History-Location": "steps-old"})
    for body in (b"one", b"two"):
        client("PUT steps/o", body=body)
    client("DELETE steps/o")
    client("POST steps", {"X-Remove-History-Location": "x", "X-Versions-Location": "steps-old"})
    client("PUT steps/o", body=b"four")
    seen = []
    for _ in range(5):
        seen.append((client("DELETE steps/o").status, client("GET steps/o").body))
    gone = client("GET steps/o").body
    assert seen == [(204, gone), (204, b"two"), (204, b"one"), (204, gone), (404, gone)]
    assert list_versions(client, "steps-old") == []


@pytest.mark.parametrize("header", ["X-Versions-Location", "X-History-Location"])
def test_the_manifest_of_a_dynamic_large_object_is_kept(client: Client, header: str) -> None:
    client("PUT dlo-old")
    client("PUT dlo-parts")
    client("PUT dlo-parts/1", body=b"part")
    client(f"PUT {header}", {header: "dlo-old"})
    client(f"PUT {header}/o", {"X-Object-Manifest": "dlo-parts/1"}, b"")
    client(f"PUT {header}/o", body=b"over it")
    (kept,) = client("GET dlo-old").body.decode().splitlines()
    assert client(f"GET dlo-old/{kept}").body == b"part"
    client(f"DELETE dlo-old/{kept}")
