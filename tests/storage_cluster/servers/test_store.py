"""The store over sockets: the Swift API as a client sees it, and what goes on behind it."""

import contextlib
import hashlib
import json
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import swiftclient

from testkit.loopback_store import Answer, LoopbackStore
from tests.helpers.polling import wait_for

ACCOUNT = "/v1/AUTH_test"
NAMES = ["plain", "with space", "a/b/c", "per%20cent", "日本語/é", "query?x=1&y", "#"]


class Client:
    """Requests with a token."""

    def __init__(self, store: LoopbackStore) -> None:
        self.store = store
        self.token = store.token()

    def __call__(
        self, method: str, path: str, headers: dict[str, str] | None = None, body: bytes | None = None
    ) -> Answer:
        return self.store.ask(method, ACCOUNT + path, {"X-Auth-Token": self.token} | (headers or {}), body)


@pytest.fixture
def client(store: LoopbackStore) -> Client:
    made = Client(store)
    assert made("PUT", "/c").status == 201
    return made


@pytest.fixture
def swift(store: LoopbackStore) -> Iterator[swiftclient.Connection]:
    url = f"http://{store.topology.service('proxy').address}:{store.topology.service('proxy').port}{ACCOUNT}"
    made = swiftclient.Connection(preauthurl=url, preauthtoken=store.token(), retries=0)
    with contextlib.closing(made) as connection:
        yield connection


def object_files(store: LoopbackStore) -> list[Path]:
    return sorted(store.root.glob("data/*/*/objects/**/*.data"))


@pytest.mark.parametrize("name", NAMES)
def test_swiftclient_writes_reads_and_deletes(swift: swiftclient.Connection, name: str) -> None:
    body = name.encode() * 1000
    swift.put_container("box")
    etag = swift.put_object("box", name, body, content_type="text/x-test", headers={"X-Object-Meta-Colour": "blue"})
    headers, read = swift.get_object("box", name)
    assert read == body
    assert headers["etag"] == etag == hashlib.md5(body).hexdigest()
    assert headers["content-type"] == "text/x-test"
    assert headers["x-object-meta-colour"] == "blue"
    assert int(swift.head_object("box", name)["content-length"]) == len(body)
    assert [entry["name"] for entry in swift.get_container("box")[1]] == [name]
    swift.post_object("box", name, {"X-Object-Meta-Shape": "round"})
    assert "x-object-meta-colour" not in swift.head_object("box", name)
    assert swift.head_object("box", name)["x-object-meta-shape"] == "round"
    swift.delete_object("box", name)
    with pytest.raises(swiftclient.ClientException, match="404"):
        swift.head_object("box", name)
    swift.delete_container("box")
    assert swift.get_account()[1] == []


@pytest.mark.parametrize("name", ["..", "a/../b", "./a", "a//b", "a/"])
def test_a_name_is_not_taken_for_a_path(client: Client, name: str) -> None:
    assert client("PUT", f"/c/{name}", body=name.encode()).status == 201
    assert client("GET", f"/c/{name}").body == name.encode()
    assert client("GET", "/c").body == f"{name}\n".encode()


def test_listing_shows_what_json_promises(client: Client) -> None:
    for name in ("a", "photos/1", "photos/2", "z"):
        assert client("PUT", f"/c/{name}", {"Content-Type": "text/plain"}, b"12345").status == 201
    whole = json.loads(client("GET", "/c?format=json").body)
    assert [entry["name"] for entry in whole] == ["a", "photos/1", "photos/2", "z"]
    assert whole[0] == {
        "name": "a",
        "bytes": 5,
        "hash": hashlib.md5(b"12345").hexdigest(),
        "content_type": "text/plain",
        "last_modified": whole[0]["last_modified"],
    }
    assert client("GET", "/c?delimiter=/").body == b"a\nphotos/\nz\n"
    assert client("GET", "/c?prefix=photos/&limit=1").body == b"photos/1\n"
    assert client("GET", "/c?marker=photos/1").body == b"photos/2\nz\n"
    assert client("GET", "?format=json").status == 200


def _account_counts(client: Client) -> tuple[str, str]:
    headers = client("HEAD", "").headers
    return headers["x-account-object-count"], headers["x-account-bytes-used"]


def test_counts_reach_container_and_account(client: Client) -> None:
    client("PUT", "/c/o", body=b"12345")
    client("PUT", "/c/o", body=b"123")
    client("PUT", "/c/p", body=b"1")
    head = client("HEAD", "/c")
    assert (head.headers["x-container-object-count"], head.headers["x-container-bytes-used"]) == ("2", "4")
    wait_for(lambda: _account_counts(client) == ("2", "4"), "the account's counts of objects and bytes")
    assert client("HEAD", "").headers["x-account-container-count"] == "1"


@pytest.mark.parametrize(
    ("request_line", "headers", "body", "status"),
    [
        ("GET /c/absent", {}, None, 404),
        ("HEAD /absent", {}, None, 404),
        ("PUT /absent/o", {}, b"x", 404),
        ("DELETE /c/absent", {}, None, 404),
        ("POST /c/absent", {"X-Object-Meta-A": "1"}, None, 404),
        ("PUT /c/o", {"Etag": "0" * 32}, b"x", 422),
        ("PUT /c/" + "o" * 1025, {}, b"x", 400),
        ("PUT /" + "c" * 257, {}, None, 400),
        ("PUT /c/o", {"Content-Length": "5368709123"}, None, 413),
        ("PUT /c/%ff", {}, b"x", 412),
        ("GET /c?limit=10001", {}, None, 412),
        ("PATCH /c/o", {}, None, 405),
        ("PUT /c/o", {"X-Object-Manifest": "parts"}, b"", 400),
        ("PUT /c/o", {"X-Delete-After": "-1"}, b"", 400),
    ],
)
def test_errors_have_swifts_status(
    client: Client, request_line: str, headers: dict[str, str], body: bytes | None, status: int
) -> None:
    answer = client(*request_line.split(), headers, body)
    assert answer.status == status
    assert answer.headers["x-trans-id"].startswith("tx")


def test_a_body_of_unknown_length_needs_chunks(client: Client, store: LoopbackStore) -> None:
    proxy = store.topology.service("proxy")
    head = f"PUT {ACCOUNT}/c/o HTTP/1.1\r\nHost: x\r\nX-Auth-Token: {client.token}\r\n"
    with socket.create_connection((proxy.address, proxy.port), timeout=10) as connection:
        connection.sendall(f"{head}\r\n".encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 411 ")
    with socket.create_connection((proxy.address, proxy.port), timeout=10) as connection:
        connection.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n".encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 201 ")
    assert client("GET", "/c/o").body == b"abc"


def test_a_container_with_objects_stays(client: Client) -> None:
    client("PUT", "/c/o", body=b"x")
    assert client("DELETE", "/c").status == 409
    client("DELETE", "/c/o")
    assert client("DELETE", "/c").status == 204
    assert client("GET", "/c").status == 404


def test_who_may_not(store: LoopbackStore) -> None:
    assert store.ask("GET", ACCOUNT).status == 401
    assert store.ask("GET", ACCOUNT, {"X-Auth-Token": "AUTH_tkwrong"}).status == 401
    assert store.ask("GET", ACCOUNT, {"X-Auth-Token": store.token("other:someone", "secret")}).status == 403
    wrong = {"X-Auth-User": "test:tester", "X-Auth-Key": "wrong"}
    assert store.ask("GET", "/auth/v1.0", wrong, service="auth").status == 401
    assert "Swift realm" in store.ask("GET", ACCOUNT).headers["www-authenticate"]


def test_metadata_of_containers_and_accounts(client: Client) -> None:
    client("POST", "/c", {"X-Container-Meta-Colour": "blue", "X-Container-Meta-Size": "7"})
    client("POST", "/c", {"X-Remove-Container-Meta-Colour": "x"})
    head = client("HEAD", "/c").headers
    assert "x-container-meta-colour" not in head
    assert head["x-container-meta-size"] == "7"
    assert client("POST", "", {"X-Account-Meta-Owner": "me"}).status == 204
    assert client("HEAD", "").headers["x-account-meta-owner"] == "me"


def test_open_pages(store: LoopbackStore) -> None:
    assert store.ask("GET", "/healthcheck").body == b"OK"
    assert json.loads(store.ask("GET", "/info").body)["swift"]["max_file_size"] == 5368709122
    assert [store.ask("GET", path).status for path in ("/", "/elsewhere", "/v2/a", "/v1")] == [404, 412, 400, 412]


def test_a_big_object_is_the_same_on_all_replicas(client: Client, store: LoopbackStore) -> None:
    body = bytes(range(256)) * 20_000
    answer = client("PUT", "/c/big", {"Etag": hashlib.md5(body).hexdigest()}, body)
    assert (answer.status, answer.headers["etag"]) == (201, hashlib.md5(body).hexdigest())
    assert client("GET", "/c/big").body == body
    wait_for(lambda: len(object_files(store)) == 3, "three replicas")
    assert all(path.read_bytes().startswith(body) for path in object_files(store))
    assert len({path.relative_to(store.root).parts[1] for path in object_files(store)}) == 3


def test_one_transaction_id_on_every_host(client: Client, store: LoopbackStore) -> None:
    answer = client("PUT", "/c/o", body=b"x")
    transaction_id = answer.headers["x-trans-id"]
    wait_for(lambda: len(log_of(store, transaction_id, "container")) == 4, "three container updates")
    assert [(line["method"], line["status"]) for line in log_of(store, transaction_id, "account")] == [("HEAD", 204)]
    assert sorted(line["method"] for line in log_of(store, transaction_id, "container")) == [
        "HEAD",
        "PUT",
        "PUT",
        "PUT",
    ]
    assert [line["status"] for line in log_of(store, transaction_id, "object")] == [201, 201, 201]
    assert [line["bytes_in"] for line in log_of(store, transaction_id, "object")] == [1, 1, 1]
    wait_for(lambda: bool(log_of(store, transaction_id, "proxy")), "the proxy's line, written after its answer")
    (proxy,) = log_of(store, transaction_id, "proxy")
    for service in ("account", "container", "object"):
        for line in log_of(store, transaction_id, service):
            assert proxy["start_ns"] <= line["start_ns"] < line["end_ns"]
    assert len({line["peer"] for line in log_of(store, transaction_id, "object")}) == 3


def log_of(store: LoopbackStore, transaction_id: str, service: str) -> list[dict]:
    return [line for line in store.log(service) if line["transaction_id"] == transaction_id]


def test_each_backend_request_has_a_connection_of_its_own(client: Client, store: LoopbackStore) -> None:
    for number in range(3):
        client("PUT", f"/c/o{number}", body=b"x")
    peers = [(line["local"], line["peer"]) for line in store.log("account") + store.log("container")]
    assert len(set(peers)) == len(peers) > 9


def test_the_token_is_checked_once_and_auth_asks_the_proxy_for_its_url(store: LoopbackStore) -> None:
    client = Client(store)
    for _ in range(3):
        client("GET", "")
    grant, *checks = store.log("auth")
    assert [line["path"] for line in checks] == ["/auth/token"]
    (asked,) = [line for line in store.log("proxy") if line["path"].startswith("/storage_url/")]
    assert asked["transaction_id"] == grant["transaction_id"]


def test_the_client_gets_100_continue_only_when_the_servers_do(client: Client, store: LoopbackStore) -> None:
    proxy = store.topology.service("proxy")
    head = f"PUT {ACCOUNT}/c/o HTTP/1.1\r\nHost: x\r\nX-Auth-Token: {client.token}\r\nContent-Length: 3\r\n"
    with socket.create_connection((proxy.address, proxy.port), timeout=10) as connection:
        connection.sendall(f"{head}Expect: 100-continue\r\n\r\n".encode())
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"abc")
        assert connection.recv(100).startswith(b"HTTP/1.1 201 ")
    for host in ("storage1", "storage2", "storage3"):
        store.stop(host, "object")
    with socket.create_connection((proxy.address, proxy.port), timeout=10) as connection:
        connection.sendall(f"{head}Expect: 100-continue\r\n\r\n".encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 503 ")


def test_a_reader_that_leaves_half_way_is_a_line_in_the_log(client: Client, store: LoopbackStore) -> None:
    client("PUT", "/c/big", body=bytes(20_000_000))
    proxy = store.topology.service("proxy")
    with socket.create_connection((proxy.address, proxy.port), timeout=10) as connection:
        connection.sendall(f"GET {ACCOUNT}/c/big HTTP/1.1\r\nHost: x\r\nX-Auth-Token: {client.token}\r\n\r\n".encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 200 ")
    wait_for(lambda: store.log("proxy")[-1]["method"] == "GET", "the proxy's line")
    assert store.log("proxy")[-1]["status"] == 499
    assert client("GET", "/c/big").body == bytes(20_000_000)


def test_a_client_that_leaves_half_way_leaves_nothing(client: Client, store: LoopbackStore) -> None:
    proxy = store.topology.service("proxy")
    head = f"PUT {ACCOUNT}/c/o HTTP/1.1\r\nHost: x\r\nX-Auth-Token: {client.token}\r\nContent-Length: 200000\r\n\r\n"
    with socket.create_connection((proxy.address, proxy.port), timeout=10) as connection:
        connection.sendall(head.encode() + bytes(100_000))
        wait_for(lambda: len(list(store.root.glob("data/*/*/tmp/*"))) == 3, "the body to arrive")
    wait_for(lambda: not list(store.root.glob("data/*/*/tmp/*")), "the temporary files to go")
    assert object_files(store) == []
    assert client("GET", "/c/o").status == 404
    wait_for(lambda: [line["status"] for line in store.log("object")][:3] == [499] * 3, "499 in the logs")


@pytest.mark.parametrize("down", ["storage1", "storage2", "storage3"])
def test_with_one_object_server_down_a_handoff_takes_its_place(client: Client, store: LoopbackStore, down: str) -> None:
    store.stop(down, "object")
    answer = client("PUT", "/c/o", body=b"precious")
    assert answer.status == 201
    assert client("GET", "/c/o").body == b"precious"
    wait_for(lambda: len(object_files(store)) == 3, "three replicas on two hosts")
    placed = [path.relative_to(store.root).parts[1:3] for path in object_files(store)]
    assert down not in {host for host, _ in placed}
    assert len(set(placed)) == 3
    store.restart(down, "object")
    assert client("GET", "/c/o").body == b"precious"


def test_two_devices_of_one_host_are_a_majority_and_one_is_not(client: Client, store: LoopbackStore) -> None:
    store.stop("storage1", "object")
    store.stop("storage2", "object")
    assert client("PUT", "/c/o", body=b"precious").status == 201
    wait_for(lambda: len(object_files(store)) == 2, "two replicas")
    shutil.rmtree(store.root / "data" / "storage3" / "d1")
    assert client("PUT", "/c/p", body=b"lost").status == 503
    assert client("GET", "/c/o").body == b"precious"


def test_containers_survive_a_dead_server(client: Client, store: LoopbackStore) -> None:
    store.stop("storage2", "container")
    assert client("PUT", "/later").status == 201
    assert client("HEAD", "/later").status == 204
    assert client("PUT", "/later/o", body=b"x").status == 201
    assert client("GET", "/later").status == 200


def test_if_none_match_keeps_what_is_there(client: Client) -> None:
    assert client("PUT", "/c/o", {"If-None-Match": "*"}, b"first").status == 201
    assert client("PUT", "/c/o", {"If-None-Match": "*"}, b"second").status == 412
    assert client("GET", "/c/o").body == b"first"


def names_on(store: LoopbackStore, host: str) -> list[str]:
    """The objects that a host's own replica of AUTH_test/c lists."""
    ring = store.rings["container"]
    partition = ring.partition("AUTH_test", "c")
    (device,) = (device for device in ring.primaries(partition) if device.host == host)
    path = f"/{device.name}/{partition}/AUTH_test/c"
    listing = store.ask("GET", path, service="container", host=host).body
    return [entry["name"] for entry in json.loads(listing)]


def test_a_container_that_was_down_hears_what_it_missed(client: Client, store: LoopbackStore) -> None:
    client("PUT", "/c/early", body=b"x")
    store.stop("storage2", "container")
    assert client("PUT", "/c/o", body=b"x").status == 201
    assert client("DELETE", "/c/early").status == 204
    wait_for(lambda: len(list(store.root.glob("data/*/*/async_pending/*.json"))) == 2, "two words kept")
    store.restart("storage2", "container")
    wait_for(lambda: not list(store.root.glob("data/*/*/async_pending/*.json")), "the words to be delivered")
    assert names_on(store, "storage1") == names_on(store, "storage2") == names_on(store, "storage3") == ["o"]


def test_an_account_that_was_down_hears_of_containers(client: Client, store: LoopbackStore) -> None:
    store.stop("storage3", "account")
    assert client("PUT", "/later").status == 201
    store.restart("storage3", "account")
    for host in ("storage1", "storage2"):
        store.stop(host, "account")
    wait_for(lambda: client("GET", "").body == b"c\nlater\n", "the third replica to list the container")


def test_an_older_write_does_not_undo_a_newer_one(client: Client, store: LoopbackStore) -> None:
    client("PUT", "/c/o", body=b"new")
    ring = store.rings["object"]
    partition = ring.partition("AUTH_test", "c", "o")
    device = ring.primaries(partition)[0]
    path = f"/{device.name}/{partition}/AUTH_test/c/o"
    old = store.ask("PUT", path, {"X-Timestamp": "1000000000.00000"}, b"old", service="object", host=device.host)
    assert old.status == 409
    assert client("GET", "/c/o").body == b"new"
