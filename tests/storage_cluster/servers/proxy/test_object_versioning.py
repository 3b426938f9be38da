"""Versions of every object of a container, over sockets. Expected answers are those that Swift 2.30 gave."""

import json

import pytest

from storage_cluster.servers.proxy.version_names import archive_name, as_clients_know, split_archive_name
from testkit.loopback_store import Answer, Client, LoopbackStore

ID = "x-object-version-id"
MARK = "application/x-deleted;swift_versions_deleted=1"


@pytest.fixture(scope="module")
def client(shared_store: LoopbackStore) -> Client:
    return Client(shared_store)


def versions(client: Client, container: str, query: str = "") -> list[tuple[str, str, bool]]:
    """Name, version id and whether it is the latest."""
    entries = json.loads(client(f"GET {container}?versions{query}").body)
    return [(entry["name"], entry["version_id"], entry["is_latest"]) for entry in entries if "name" in entry]


def put(client: Client, path: str, body: bytes, headers: dict[str, str] | None = None) -> str:
    """The id of the version it makes."""
    answer = client(f"PUT {path}", headers, body)
    assert answer.status == 201
    return answer.headers[ID]


def test_each_put_is_a_version_and_the_last_one_is_shown(client: Client) -> None:
    client("PUT ov")
    client("PUT ov/before", {"Content-Type": "a/0"}, b"before")
    assert client("POST ov", {"X-Versions-Enabled": "true"}).status == 204
    first = put(client, "ov/o", b"one", {"Content-Type": "a/1", "X-Object-Meta-A": "1"})
    second = put(client, "ov/o", b"two!", {"Content-Type": "a/2"})
    found = client("GET ov/o")
    assert (found.body, found.headers[ID], found.headers["content-type"]) == (b"two!", second, "a/2")
    assert found.headers["content-location"] == f"/v1/AUTH_test/ov/o?version-id={second}"
    old = client(f"GET ov/o?version-id={first}", {"Range": "bytes=1-"})
    assert (old.status, old.body, old.headers[ID], old.headers["x-object-meta-a"]) == (206, b"ne", first, "1")
    assert "content-location" not in old.headers
    assert versions(client, "ov") == [("before", "null", True), ("o", second, True), ("o", first, False)]
    head = client("HEAD ov").headers
    assert (head["x-versions-enabled"], head["x-container-object-count"]) == ("True", "2")
    assert head["x-container-bytes-used"] == "13"
    (_, listed) = json.loads(client("GET ov?format=json").body)
    assert (listed["bytes"], listed["version_symlink"]) == (4, True)
    assert listed["symlink_path"] == f"/v1/AUTH_test/ov/o?version-id={second}"
    put(client, "ov/before", b"after")
    assert [latest for _, _, latest in versions(client, "ov", "&prefix=before")] == [True, False]
    assert client("GET ?prefix=").body.count(b"versions") == 0  # the container that holds them is not listed


def test_deleting_leaves_a_mark_and_versions_come_back(client: Client) -> None:
    client("PUT od", {"X-Versions-Enabled": "true"})
    first, second = put(client, "od/o", b"one"), put(client, "od/o", b"two")
    deleted = client("DELETE od/o")
    mark = deleted.headers[ID]
    assert (deleted.status, client("GET od/o").status, client("GET od").body) == (204, 404, b"")
    assert versions(client, "od") == [("o", mark, True), ("o", second, False), ("o", first, False)]
    shown = client(f"GET od/o?version-id={mark}")
    assert (shown.status, shown.headers["content-type"], shown.headers[ID]) == (404, MARK, mark)
    assert client("DELETE od").status == 409
    again = client(f"PUT od/o?version-id={first}", body=b"")
    assert (again.status, again.headers[ID], client("GET od/o").body) == (201, first, b"one")
    assert client(f"PUT od/o?version-id={first}", body=b"x").status == 400
    assert client("PUT od/o?version-id=1234567890.00000", body=b"").status == 404
    for version_id, left in ((second, first), (first, "null"), (mark, "null")):
        gone = client(f"DELETE od/o?version-id={version_id}")
        assert (gone.status, gone.headers[ID]) == (204, version_id)
        assert gone.headers["x-object-current-version-id"] == left
    assert (client("GET od/o").status, versions(client, "od")) == (404, [])
    assert client("DELETE od").status == 204
    assert client("HEAD od").status == 404


def test_metadata_is_the_current_versions(client: Client) -> None:
    client("PUT om", {"X-Versions-Enabled": "true"})
    first = put(client, "om/o", b"one", {"X-Object-Meta-A": "1"})
    second = put(client, "om/o", b"two")
    assert client("POST om/o", {"X-Object-Meta-P": "1"}).status == 202
    assert client(f"HEAD om/o?version-id={second}").headers["x-object-meta-p"] == "1"
    assert client(f"HEAD om/o?version-id={first}").headers["x-object-meta-a"] == "1"
    assert client(f"POST om/o?version-id={first}", {"X-Object-Meta-P": "2"}).status == 400
    assert client("POST om/absent", {"X-Object-Meta-P": "1"}).status == 404
    client("POST om/o", {"Content-Type": "x/y"})
    assert json.loads(client("GET om?format=json").body)[0]["content_type"] == "x/y"


def test_the_object_ends_and_the_version_stays(client: Client) -> None:
    client("PUT ox", {"X-Versions-Enabled": "true"})
    put(client, "ox/o", b"one", {"X-Delete-After": "9999"})
    assert "x-delete-at" not in client("HEAD ox/o").headers
    assert "x-delete-at" in client("HEAD ox/o?symlink=get").headers


def test_switched_off_objects_have_no_versions_and_the_old_ones_stay(client: Client) -> None:
    client("PUT off", {"X-Versions-Enabled": "true"})
    first = put(client, "off/o", b"one")
    client("POST off", {"X-Versions-Enabled": "false"})
    assert ID not in client("PUT off/o", body=b"null1").headers
    client("PUT off/o", body=b"null2")
    assert versions(client, "off") == [("o", "null", True), ("o", first, False)]
    for path in ("off/o", "off/o?version-id=null"):
        found = client(f"GET {path}")
        assert (found.body, found.headers[ID]) == (b"null2", "null")
    assert client("DELETE off/o").status == 204
    assert versions(client, "off") == [("o", first, False)]
    assert client(f"GET off/o?version-id={first}").body == b"one"


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("", "a2 a1 b/1 c2 c1 d"),
        ("&limit=2", "a2 a1"),
        ("&marker=a", "b/1 c2 c1 d"),
        ("&end_marker=c", "a2 a1 b/1"),
        ("&prefix=c", "c2 c1"),
        ("&reverse=on", "d c1 c2 b/1 a1 a2"),
        ("&reverse=on&marker=c", "b/1 a1 a2"),
        ("&marker=c&version_marker={c2}", "c1 d"),
        ("&delimiter=/", "a2 a1 b/ c2 c1 d"),
    ],
)
def test_listing(client: Client, query: str, shown: str) -> None:
    ids = {}
    if client("HEAD ol").status == 404:
        client("PUT ol")
        client("PUT ol/d", body=b"x")
        client("POST ol", {"X-Versions-Enabled": "true"})
        for name in ("a", "a", "b/1", "c", "c"):
            put(client, f"ol/{name}", b"x")
    entries = json.loads(client("GET ol?versions").body)
    for entry in reversed(entries):
        count = sum(label.startswith(entry["name"]) for label in ids) + 1
        ids[entry["name"] + (str(count) if entry["name"] in "ac" else "")] = entry["version_id"]
    labels = {version_id: label for label, version_id in ids.items()}
    found = json.loads(client(f"GET ol?versions{query.format(**ids)}").body)
    assert " ".join(labels[one["version_id"]] if "name" in one else one["subdir"] for one in found) == shown


@pytest.mark.parametrize(
    ("line", "headers", "status"),
    [
        ("GET oe/o?version-id=junk", {}, 400),
        ("GET oe/o?version-id=1234567890.00000", {}, 404),
        ("GET oe-plain/o?version-id=1234567890.00000", {}, 400),
        ("GET oe-plain/o?version-id=null", {}, 200),
        ("GET oe?versions&format=xml", {}, 406),
        ("GET oe?versions&version_marker=1234567890.00000", {}, 400),
        ("GET oe?versions&version_marker=junk&marker=o", {}, 400),
        ("POST oe-legacy", {"X-Versions-Enabled": "true"}, 400),
    ],
)
def test_what_is_refused(client: Client, line: str, headers: dict[str, str], status: int) -> None:
    client("PUT oe", {"X-Versions-Enabled": "true"})
    client("PUT oe-legacy", {"X-Versions-Location": "elsewhere"})
    client("PUT oe-plain")
    client("PUT oe-plain/o", body=b"x")
    assert client(line, headers).status == status


def test_large_objects_links_and_copies(client: Client) -> None:
    client("PUT ok", {"X-Versions-Enabled": "true"})
    client("PUT ok-parts")
    client("PUT ok-parts/1", body=b"12345")
    large = client("PUT ok/slo?multipart-manifest=put", body=b'[{"path": "/ok-parts/1"}]').headers
    assert (client("GET ok/slo").body, client("HEAD ok/slo").headers["etag"]) == (b"12345", large["etag"])
    assert client("GET ok/slo", {"Range": "bytes=1-2"}).body == b"23"
    put(client, "ok/slo", b"plain")
    assert client(f"GET ok/slo?version-id={large[ID]}").body == b"12345"
    assert client(f"GET ok/slo?version-id={large[ID]}", {"Range": "bytes=1-2"}).body == b"23"
    put(client, "ok/link", b"", {"X-Symlink-Target": "ok-parts/1"})
    assert client("GET ok/link").body == b"12345"
    client("PUT ok-parts/link", {"X-Symlink-Target": "ok/link"}, b"")
    assert client("GET ok-parts/link").body == b"12345"
    copied = client(f"COPY ok/slo?version-id={large[ID]}", {"Destination": "ok/copy"})
    assert (copied.status, copied.headers["x-copied-from-version-id"]) == (201, large[ID])
    assert client("GET ok/copy").body == b"12345"


def test_who_may_read_the_container_may_read_what_is_current_and_nothing_else(
    client: Client, shared_store: LoopbackStore
) -> None:
    other = Client(shared_store, "other:someone", "secret")

    def reads(path: str) -> Answer:
        return other(f"GET {path}", account="AUTH_test")

    client("PUT oa-secret")
    client("PUT oa-secret/o", body=b"secret")
    client("PUT oa", {"X-Versions-Enabled": "true"})
    first, second = put(client, "oa/o", b"one"), put(client, "oa/o", b"two")
    link = put(client, "oa/link", b"", {"X-Symlink-Target": "oa-secret/o"})
    paths = ("oa/o", f"oa/o?version-id={first}", f"oa/o?version-id={second}")
    assert [reads(path).status for path in paths] == [403] * 3
    client("POST oa", {"X-Container-Read": "other:someone"})
    assert [(reads(path).status, reads(path).body == b"two") for path in paths] == [(200, True), *[(403, False)] * 2]
    assert [reads(path).status for path in ("oa/link", f"oa/link?version-id={link}")] == [403] * 2
    assert other("PUT oa/o", body=b"x", account="AUTH_test").status == 403
    assert other(f"DELETE oa/o?version-id={first}", account="AUTH_test").status == 403
    assert len(versions(client, "oa")) == 3


HIDDEN = "%00versions%00oh/%00o%001"


@pytest.mark.parametrize(
    ("line", "headers", "body", "status"),
    [
        (f"GET {HIDDEN}", {}, None, 412),
        ("PUT oh/l", {"X-Symlink-Target": HIDDEN}, b"", 412),
        ("PUT oh/l", {"X-Copy-From": HIDDEN}, b"", 412),
        ("COPY oh/o", {"Destination": HIDDEN}, None, 412),
        ("PUT oh/l", {"X-Object-Manifest": HIDDEN}, b"", 400),
        ("PUT oh-x", {"X-Versions-Location": "%00versions%00oh"}, None, 412),
        ("PUT oh/l?multipart-manifest=put", {}, b'[{"path": "/\\u0000versions\\u0000oh/o"}]', 400),
    ],
)
def test_no_client_can_name_what_servers_keep_for_themselves(
    client: Client, line: str, headers: dict[str, str], body: bytes | None, status: int
) -> None:
    client("PUT oh", {"X-Versions-Enabled": "true"})
    put(client, "oh/o", b"one")
    assert client(line, headers, body).status == status


def test_nor_delete_it_in_bulk(client: Client) -> None:
    report = client("POST ?bulk-delete", {"Accept": "application/json"}, HIDDEN.encode())
    assert json.loads(report.body)["Errors"] == [[HIDDEN, "412 Precondition Failed"]]


def test_names_of_versions_sort_newest_first_and_can_be_parsed() -> None:
    names = [archive_name(name, f"179500000{n}.00000") for name in ("a", "a/b", "ab") for n in (3, 2, 1)]
    assert names == sorted(names)
    assert split_archive_name(names[0]) == ("a", "1795000003.00000")
    assert [as_clients_know(name) for name in (names[3], "\0versions\0c", "plain")] == ["a/b", "c", "plain"]


@pytest.mark.parametrize(("method", "body"), [("POST", None), ("PUT", b"two")])
def test_what_expires_is_the_object_and_no_version(client: Client, method: str, body: bytes | None) -> None:
    container = f"oe-{method}"
    client(f"PUT {container}", {"X-Versions-Enabled": "true"})
    put(client, f"{container}/o", b"one")
    answer = client(f"{method} {container}/o", {"X-Delete-After": "1000", "X-Object-Meta-A": "1"}, body)
    assert answer.status in (201, 202)
    assert "x-delete-at" in client(f"HEAD {container}/o?symlink=get").headers
    for _, version_id, _ in versions(client, container):
        assert "x-delete-at" not in client(f"HEAD {container}/o?version-id={version_id}").headers


def test_access_lists_open_what_is_current_only(client: Client, shared_store: LoopbackStore) -> None:
    rights = {"X-Container-Read": "test:tester3", "X-Container-Write": "test:tester3"}
    client("PUT oa", {"X-Versions-Enabled": "true"} | rights)
    old, new = put(client, "oa/o", b"one"), put(client, "oa/o", b"two")
    other = Client(shared_store, "test:tester3", "testing3")
    assert other("GET oa/o").body == b"two"
    for method in ("GET", "HEAD", "DELETE"):
        assert [other(f"{method} oa/o?version-id={version}").status for version in (old, new)] == [403, 403]
    assert client("GET oa/o").headers[ID] == new


def test_hidden_versions_count_for_the_quota(client: Client) -> None:
    client("PUT oq", {"X-Versions-Enabled": "true", "X-Container-Meta-Quota-Bytes": "10"})
    assert [client("PUT oq/o", body=b"12345").status for _ in range(3)] == [201, 201, 413]


def test_a_list_of_versions_is_json_or_nothing(client: Client) -> None:
    client("PUT oj", {"X-Versions-Enabled": "true"})
    for accept, status in (("text/plain", 406), ("application/xml", 406), ("application/json", 200), ("*/*", 200)):
        assert client("GET oj?versions", {"Accept": accept}).status == status


def test_container_sync_and_versions_exclude_each_other(client: Client) -> None:
    synced = {"X-Container-Sync-To": "http://127.0.0.1/v1/a/c/", "X-Container-Sync-Key": "k"}
    client("PUT os", synced)
    head = client("HEAD os").headers
    assert (head["x-container-sync-to"], head["x-container-sync-key"]) == ("http://127.0.0.1/v1/a/c", "k")
    assert client("POST os", {"X-Versions-Enabled": "true"}).status == 400
    client("POST os", {"X-Remove-Container-Sync-To": "x"})
    assert client("POST os", {"X-Versions-Enabled": "true"}).status == 204
    assert client("POST os", synced).status == 400
    assert client("PUT os2", {"X-Container-Sync-To": "http://elsewhere/v1/a/c"}).status == 400
