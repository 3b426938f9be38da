"""Objects in fragments, through the proxy: written, read, lost in part, and what else the API does with objects."""

import contextlib
import hashlib
import itertools
import json
import random
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage_cluster import convergence
from storage_cluster.policies import ERASURE_CODING, POLICY_INDEX, Policies, Policy
from storage_cluster.ring import path_hash
from storage_cluster.servers.http import connections, multiphase
from storage_cluster.topology import DAEMONS
from testkit.loopback_store import CALM, STORAGE_HOSTS, Client, LoopbackStore
from tests.helpers.polling import PATIENCE_S, wait_for

SEGMENT = 1024
POLICIES = Policies(
    (
        Policy("gold", 0, default=True),
        Policy("coded", 1, kind=ERASURE_CODING, data_fragments=2, parity_fragments=1, segment_bytes=SEGMENT),
        Policy("large", 2, kind=ERASURE_CODING, data_fragments=2, parity_fragments=1),
    )
)
SIZES = (0, 1, SEGMENT - 1, SEGMENT, SEGMENT + 1, 5 * SEGMENT + 17)
BODY = random.Random(5).randbytes(max(SIZES))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackStore]:
    with pytest.MonkeyPatch.context() as patch:
        # All servers are in this process: one that is late is only a busy machine's, and a write needs three in time.
        patch.setattr(connections, "CONNECT_TIMEOUT_S", 10.0)
        with LoopbackStore(tmp_path_factory.mktemp("coding"), policies=POLICIES, intervals=CALM) as running:
            yield running


@pytest.fixture
def swift(store: LoopbackStore) -> Client:
    client = Client(store)
    client("PUT c", {"X-Storage-Policy": "coded"})
    client("PUT gold")
    return client


def files(store: LoopbackStore, name: str, container: str = "c") -> list[Path]:
    """The files of an object, by fragment."""
    digest = path_hash(("AUTH_test", container, name), store.topology.ring.hash_suffix)
    found = store.root.glob(f"data/*/*/objects-*/*/*/{digest}/*.data")
    return sorted(found, key=lambda path: path.name.partition("#")[2])


@contextlib.contextmanager
def without(*lost: Path) -> Iterator[None]:
    """These files are away for a while."""
    for path in lost:
        path.rename(path.with_suffix(".away"))
    try:
        yield
    finally:
        for path in lost:
            path.with_suffix(".away").rename(path)


def md5(body: bytes) -> str:
    return hashlib.md5(body, usedforsecurity=False).hexdigest()


@pytest.mark.parametrize("size", SIZES)
def test_any_two_fragments_give_every_part_of_an_object(store: LoopbackStore, swift: Client, size: int) -> None:
    body = BODY[:size]
    put = swift("PUT c/sized", {"X-Object-Meta-A": "1"}, body)
    assert (put.status, put.headers["etag"]) == (201, md5(body))
    held = files(store, "sized")
    assert [path.name.partition("#")[2] for path in held] == ["0#d.data", "1#d.data", "2#d.data"]
    assert len({path.parts[-7] for path in held}) == 3
    head = swift("HEAD c/sized").headers
    assert (head["content-length"], head["etag"], head["x-object-meta-a"]) == (str(size), md5(body), "1")
    assert not [name for name in head if name.startswith("x-object-sysmeta")]
    for lost in (None, *held):
        with without(*filter(None, [lost])):
            whole = swift("GET c/sized")
            assert (whole.status, whole.body, whole.headers["etag"]) == (200, body, md5(body))
            assert whole.headers["content-length"] == str(size)
    edges = sorted({0, 1, size // 2, SEGMENT - 1, SEGMENT, 2 * SEGMENT, size - 1} & set(range(size)))
    for first, last in itertools.combinations_with_replacement(edges, 2):
        part = swift("GET c/sized", {"Range": f"bytes={first}-{last}"})
        assert (part.status, part.body) == (206, body[first : last + 1])
        assert part.headers["content-range"] == f"bytes {first}-{last}/{size}"
    for first in edges:
        assert swift("GET c/sized", {"Range": f"bytes={first}-"}).body == body[first:]
        assert swift("GET c/sized", {"Range": f"bytes=-{size - first}"}).body == body[first:]
    assert swift("GET c/sized", {"Range": f"bytes={size}-"}).status == 416


def test_several_ranges_are_read_one_after_the_other(store: LoopbackStore, swift: Client) -> None:
    swift("PUT c/ranges", body=BODY)
    asked = f"bytes={3 * SEGMENT}-{3 * SEGMENT + 9},5-9,-3,{SEGMENT + 5}-{SEGMENT + 6}"
    answer = swift("GET c/ranges", {"Range": asked})
    assert answer.status == 206
    boundary = answer.headers["content-type"].partition("boundary=")[2].encode()
    parts = [part.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n") for part in answer.body.split(b"--" + boundary)]
    wanted = [BODY[3 * SEGMENT : 3 * SEGMENT + 10], BODY[5:10], BODY[-3:], BODY[SEGMENT + 5 : SEGMENT + 7]]
    assert parts[1:-1] == wanted
    assert int(answer.headers["content-length"]) == len(answer.body)


@pytest.mark.parametrize("at", ["first", "last"])
def test_a_damaged_fragment_is_replaced_while_it_is_read(store: LoopbackStore, swift: Client, at: str) -> None:
    body = random.Random(1).randbytes(3_000_000)
    swift("PUT large", {"X-Storage-Policy": "large"})
    assert swift("PUT large/o", body=body).status == 201
    for path in files(store, "o", "large"):
        whole = path.read_bytes()
        position = 1000 if at == "first" else 1_500_000
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        assert [swift("GET large/o").body == body for _ in range(3)] == [True] * 3
        assert swift("GET large/o", {"Range": "bytes=2500000-2600000"}).body == body[2_500_000:2_600_001]
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(whole)


def test_a_server_that_stops_within_a_body_is_replaced(store: LoopbackStore, swift: Client) -> None:
    body = random.Random(2).randbytes(1 << 20) * 16
    swift("PUT large", {"X-Storage-Policy": "large"})
    assert swift("PUT large/long", body=body).status == 201
    proxy = store.topology.service("proxy")
    head = f"GET /v1/AUTH_test/large/long HTTP/1.0\r\nHost: x\r\nX-Auth-Token: {store.token()}\r\n\r\n"
    for host in STORAGE_HOSTS:  # each reads from two of the three
        with socket.create_connection((proxy.address, proxy.port), timeout=30) as connection:
            connection.sendall(head.encode())
            received = connection.recv(1000)
            store.stop(host, "object")
            while chunk := connection.recv(1 << 20):
                received += chunk
        store.restart(host, "object")
        assert received.partition(b"\r\n\r\n")[2] == body


@pytest.mark.parametrize("down", STORAGE_HOSTS)
def test_with_a_host_down_a_handoff_has_its_fragment(store: LoopbackStore, swift: Client, down: str) -> None:
    store.stop(down, "object")
    assert swift(f"PUT c/handed-{down}", body=BODY).status == 201
    held = files(store, f"handed-{down}")
    assert [path.name.partition("#")[2] for path in held] == ["0#d.data", "1#d.data", "2#d.data"]
    assert down not in {path.parts[-7] for path in held}
    assert swift(f"GET c/handed-{down}").body == BODY
    assert swift(f"POST c/handed-{down}", {"X-Object-Meta-B": "2"}).status == 202
    store.restart(down, "object")
    assert swift(f"GET c/handed-{down}").headers["x-object-meta-b"] == "2"
    store.stop(down, "object")
    assert swift(f"DELETE c/handed-{down}").status == 204
    store.restart(down, "object")
    assert swift(f"GET c/handed-{down}").status == 404


def test_two_hosts_down_take_the_object_away_for_a_while_only(store: LoopbackStore, swift: Client) -> None:
    swift("PUT c/away", body=BODY)
    for host in STORAGE_HOSTS[:2]:
        store.stop(host, "object")
    assert swift("GET c/away").status == 503
    assert swift("PUT c/away", body=b"new").status == 503  # two devices are left, three must have it
    for host in STORAGE_HOSTS[:2]:
        store.restart(host, "object")
    assert swift("GET c/away").body == BODY


def test_what_is_not_durable_is_not_there(store: LoopbackStore, swift: Client) -> None:
    swift("PUT c/undecided", body=BODY)
    held = files(store, "undecided")
    undecided = [path.with_name(path.name.replace("#d", "")) for path in held]
    for path, name in zip(held, undecided, strict=True):
        path.rename(name)
    for method in ("GET", "HEAD", "DELETE"):
        assert swift(f"{method} c/undecided").status == 404
    for path, name in zip(held, undecided, strict=True):
        path.unlink(missing_ok=True)
        name.unlink(missing_ok=True)


def test_one_durable_fragment_makes_its_version_durable(store: LoopbackStore, swift: Client) -> None:
    swift("PUT c/decided", body=BODY)
    for path in files(store, "decided")[1:]:
        path.rename(path.with_name(path.name.replace("#d", "")))
    assert [swift("GET c/decided").body == BODY for _ in range(6)] == [True] * 6


@pytest.mark.parametrize("newer", [1, 2])
def test_of_two_versions_the_newest_that_can_be_read_is_given(store: LoopbackStore, swift: Client, newer: int) -> None:
    """`newer`: how many fragments of the second version there are."""
    swift(f"PUT c/mixed{newer}", body=b"old" * 100)
    first = [(path, path.read_bytes()) for path in files(store, f"mixed{newer}")]
    swift(f"PUT c/mixed{newer}", body=b"new" * 100)
    second = files(store, f"mixed{newer}")
    for (path, content), now in list(zip(first, second, strict=True))[newer:]:
        now.unlink()
        path.write_bytes(content)
    wanted = b"new" * 100 if newer == 2 else b"old" * 100
    assert [swift(f"GET c/mixed{newer}").body == wanted for _ in range(6)] == [True] * 6
    assert swift(f"GET c/mixed{newer}", {"X-Newest": "true"}).body == wanted


def test_a_device_is_asked_again_for_the_version_that_others_have(store: LoopbackStore, swift: Client) -> None:
    swift("PUT c/again", body=b"old")
    older = files(store, "again")[2]
    content = older.read_bytes()
    swift("PUT c/again", body=b"new")
    first, _, third = files(store, "again")
    third.rename(third.with_name(third.name.replace("#d", "")))
    older.write_bytes(content)  # durable, so that its device gives this one unless asked otherwise
    with without(first):
        assert [swift("GET c/again").body for _ in range(4)] == [b"new"] * 4


def test_a_later_deletion_wins_though_one_device_alone_has_it(store: LoopbackStore, swift: Client) -> None:
    swift("PUT c/deleted", body=BODY)
    path = files(store, "deleted")[1]
    path.rename(path.with_name("9999999999.00000.ts"))
    assert swift("GET c/deleted", {"X-Newest": "true"}).status == 404
    path.with_name("9999999999.00000.ts").unlink()


def test_conditions_are_about_the_whole_object(swift: Client) -> None:
    swift("PUT c/conditions", body=BODY)
    etag = md5(BODY)
    for method in ("GET", "HEAD"):
        assert swift(f"{method} c/conditions", {"If-None-Match": etag}).status == 304
        assert swift(f"{method} c/conditions", {"If-Match": etag}).status == 200
        assert swift(f"{method} c/conditions", {"If-Match": "other"}).status == 412
        assert swift(f"{method} c/none", {"If-Match": "*"}).status == 412
    assert swift("GET c/conditions", {"If-Match": etag, "Range": "bytes=0-1"}).body == BODY[:2]
    assert swift("GET c/conditions", {"If-Modified-Since": "Fri, 01 Jan 2100 00:00:00 GMT"}).status == 304


def test_a_write_is_refused_as_one_of_replicas_is(store: LoopbackStore, swift: Client) -> None:
    assert swift("PUT c/checked", {"Etag": md5(BODY)}, BODY).status == 201
    assert swift("PUT c/checked", {"Etag": "0" * 32}, b"other").status == 422
    assert swift("PUT c/checked", {"If-None-Match": "*"}, b"other").status == 412
    assert swift("GET c/checked").body == BODY
    assert len(files(store, "checked")) == 3


def test_a_client_that_leaves_half_way_leaves_nothing(store: LoopbackStore, swift: Client) -> None:
    proxy = store.topology.service("proxy")
    head = f"PUT /v1/AUTH_test/c/half HTTP/1.1\r\nHost: x\r\nX-Auth-Token: {store.token()}\r\n"
    head += "Content-Length: 400000\r\n\r\n"
    with socket.create_connection((proxy.address, proxy.port), timeout=10) as connection:
        connection.sendall(head.encode() + bytes(300_000))
        wait_for(lambda: len(list(store.root.glob("data/*/*/tmp/*"))) == 3, "the fragments to arrive")
    wait_for(lambda: not list(store.root.glob("data/*/*/tmp/*")), "the temporary files to go")
    assert files(store, "half") == []
    assert swift("GET c/half").status == 404


def test_the_listing_and_the_account_count_whole_objects(store: LoopbackStore) -> None:
    other = Client(store, "test2:tester2", "testing2")
    other("PUT counted", {"X-Storage-Policy": "coded"})
    other("PUT counted/o", body=BODY)
    other("POST counted/o", {"Content-Type": "text/html"})
    (entry,) = json.loads(other("GET counted?format=json").body)
    assert (entry["bytes"], entry["hash"], entry["content_type"]) == (len(BODY), md5(BODY), "text/html")
    wait_for(
        lambda: other("HEAD ").headers.get("x-account-storage-policy-coded-bytes-used") == str(len(BODY)), "the report"
    )


def test_copies_cross_policies_both_ways(store: LoopbackStore, swift: Client) -> None:
    swift("PUT c/from", {"X-Object-Meta-A": "1"}, BODY)
    assert swift("COPY c/from", {"Destination": "gold/copy"}).status == 201
    copied = swift("GET gold/copy")
    assert (copied.body, copied.headers["x-object-meta-a"], copied.headers["etag"]) == (BODY, "1", md5(BODY))
    assert swift("PUT c/back", {"X-Copy-From": "gold/copy"}, b"").status == 201
    back = swift("GET c/back")
    assert (back.body, back.headers["x-object-meta-a"]) == (BODY, "1")
    assert len(files(store, "back")) == 3
    assert swift("COPY c/back", {"Destination": "c/part", "Range": "bytes=2-5"}).status == 201
    assert swift("GET c/part").body == BODY[2:6]


def test_large_objects_and_links_are_kept_in_fragments(swift: Client) -> None:
    for name in "ab":
        swift(f"PUT c/seg-{name}", body=name.encode() * 2000)
    whole = b"a" * 2000 + b"b" * 2000
    manifest = json.dumps([{"path": f"c/seg-{name}"} for name in "ab"]).encode()
    assert swift("PUT c/slo?multipart-manifest=put", body=manifest).status == 201
    assert swift("PUT c/dlo", {"X-Object-Manifest": "c/seg-"}, b"").status == 201
    assert swift("PUT c/link", {"X-Symlink-Target": "c/seg-b"}, b"").status == 201
    for name in ("slo", "dlo"):
        assert swift(f"GET c/{name}").body == whole
        assert swift(f"GET c/{name}", {"Range": "bytes=1998-2001"}).body == b"aabb"
        assert swift(f"HEAD c/{name}").headers["content-length"] == "4000"
    etag = swift("HEAD c/slo").headers["etag"]
    assert swift("GET c/slo", {"If-None-Match": etag}).status == 304
    assert swift("GET c/link").body == b"b" * 2000
    assert swift("GET c/link?symlink=get").body == b""
    listed = {entry["name"]: entry["bytes"] for entry in json.loads(swift("GET c?format=json").body)}
    assert listed["slo"] == 4000


def test_versions_and_quotas_count_whole_objects(swift: Client) -> None:
    swift("PUT v", {"X-Storage-Policy": "coded"})
    assert swift("POST v", {"X-Versions-Enabled": "true"}).status == 204
    for body in (BODY, b"second"):
        assert swift("PUT v/o", body=body).status == 201
    versions = json.loads(swift("GET v?versions&format=json").body)
    assert {swift(f"GET v/o?version-id={each['version_id']}").body for each in versions} == {BODY, b"second"}
    swift("PUT q", {"X-Storage-Policy": "coded", "X-Container-Meta-Quota-Bytes": str(len(BODY))})
    assert swift("PUT q/o", body=BODY).status == 201
    assert swift("PUT q/p", body=b"xy").status == 413


def test_info_does_not_say_how_objects_are_kept(store: LoopbackStore) -> None:
    found = json.loads(store.ask("GET", "/info").body)["swift"]["policies"]
    assert found == [
        {"name": "gold", "aliases": "gold", "default": True},
        {"name": "coded", "aliases": "coded"},
        {"name": "large", "aliases": "large"},
    ]


def test_each_fragment_is_a_request_of_the_clients_transaction(store: LoopbackStore, swift: Client) -> None:
    put = swift("PUT c/traced", body=BODY)
    lines = [line for line in store.log("object") if line["transaction_id"] == put.headers["x-trans-id"]]
    assert [(line["method"], line["status"]) for line in lines] == [("PUT", 201)] * 3
    got = swift("GET c/traced")
    lines = [line for line in store.log("object") if line["transaction_id"] == got.headers["x-trans-id"]]
    assert [(line["method"], line["status"]) for line in lines] == [("GET", 200)] * 2


@pytest.mark.parametrize(
    ("header", "value"),
    [("X-Backend-Fragment-Preferences", "x"), (POLICY_INDEX, "x"), ("X-Backend-Ssync-Frag-Index", "x")],
)
def test_a_server_refuses_what_it_cannot_read(store: LoopbackStore, header: str, value: str) -> None:
    method, path = ("REPLICATE", "/d1") if "Ssync" in header else ("GET", "/d1/1/AUTH_test/c/o")
    headers = {POLICY_INDEX: "1", header: value}
    assert store.ask(method, path, headers, service="object", host="storage1").status == 400


@pytest.mark.parametrize(("policy", "boundary"), [("0", "b"), ("1", "b"), ("1", "")])
def test_a_server_refuses_an_upload_that_does_not_fit_its_policy(
    store: LoopbackStore, policy: str, boundary: str
) -> None:
    headers = {POLICY_INDEX: policy, "X-Timestamp": "1700000001.00000", "Content-Type": "text/plain"}
    headers |= multiphase.request_headers(boundary) if boundary else {}
    body = multiphase.before_body("b") + multiphase.after_body("b", {}) + multiphase.confirmation("b")
    answer = store.ask("PUT", "/d1/1/AUTH_test/c/unfit", headers, body, service="object", host="storage1")
    assert answer.status == 400
    assert not list(store.root.glob("data/storage1/*/tmp/*"))


def test_daemons_audit_rebuild_and_expire(tmp_path: Path) -> None:
    with LoopbackStore(tmp_path, DAEMONS, policies=POLICIES) as store:
        swift = Client(store)
        swift("PUT c", {"X-Storage-Policy": "coded"})
        swift("PUT c/lost", body=BODY)
        swift("PUT c/rotten", body=BODY)
        swift("PUT c/short", {"X-Delete-After": "1"}, BODY)
        lost, rotten = files(store, "lost")[0], files(store, "rotten")[1]
        lost.unlink()
        rotten.write_bytes(b"R" + rotten.read_bytes()[1:])
        wait_for(lambda: len(files(store, "lost")) == 3, "the fragment that was lost")
        wait_for(lambda: any(store.root.glob("data/*/*/quarantined/objects-1/*")), "the quarantine")
        wait_for(lambda: len(files(store, "rotten")) == 3, "a sound fragment")
        wait_for(lambda: not files(store, "short"), "the expiry")
        assert convergence.await_agreement(store.root / "data", store.rings, PATIENCE_S) == []
        assert swift("GET c/rotten").body == BODY
