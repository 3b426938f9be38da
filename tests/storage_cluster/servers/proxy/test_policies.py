"""Storage policies: a container's policy, its objects' ring and directories, and everything that crosses policies."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage_cluster import convergence
from storage_cluster.policies import Policies, Policy, PolicyError, parse
from storage_cluster.ring import path_hash
from storage_cluster.topology import DAEMONS
from testkit.loopback_store import CALM, Client, LoopbackStore
from tests.helpers.polling import PATIENCE_S, wait_for

POLICIES = Policies(
    (
        Policy("gold", 0, aliases=("three",), default=True),
        Policy("silver", 1, replicas=2),
        Policy("bronze", 2, replicas=4),
        Policy("old", 3, deprecated=True),
    )
)


CODED = {"kind": "erasure_coding", "data_fragments": 2, "parity_fragments": 1}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackStore]:
    with LoopbackStore(tmp_path_factory.mktemp("policies"), policies=POLICIES, intervals=CALM) as running:
        yield running


@pytest.fixture(scope="module")
def busy_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackStore]:
    """With all daemons."""
    with LoopbackStore(tmp_path_factory.mktemp("daemons"), DAEMONS, policies=POLICIES) as running:
        yield running


@pytest.fixture
def swift(store: LoopbackStore) -> Client:
    return Client(store)


def put_container(swift: Client, name: str, policy: str = "") -> int:
    return swift(f"PUT {name}", {"X-Storage-Policy": policy} if policy else {}).status


def holders(store: LoopbackStore, policy: int, *names: str) -> list[Path]:
    """The directories with an object of a policy."""
    digest = path_hash(("AUTH_test", *names), store.topology.ring.hash_suffix)
    directory = f"objects-{policy}" if policy else "objects"
    return [path for path in store.root.glob(f"data/*/*/{directory}/*/*/{digest}") if any(path.glob("*.data"))]


def test_a_container_has_a_policy_and_keeps_it(swift: Client) -> None:
    assert [put_container(swift, "keeps", policy) for policy in ("Silver", "silver", "", "gold")] == [
        201,
        202,
        202,
        409,
    ]
    assert swift("POST keeps", {"X-Storage-Policy": "gold"}).status == 204
    for method in ("HEAD", "GET"):
        assert swift(f"{method} keeps").headers["x-storage-policy"] == "silver"
    assert put_container(swift, "usual") == 201
    assert swift("HEAD usual").headers["x-storage-policy"] == "gold"
    assert put_container(swift, "by-alias", "THREE") == 201
    assert swift("HEAD by-alias").headers["x-storage-policy"] == "gold"
    assert swift("DELETE usual").status == 204
    assert put_container(swift, "usual", "bronze") == 201
    assert swift("HEAD usual").headers["x-storage-policy"] == "bronze"


@pytest.mark.parametrize(
    ("policy", "text"),
    [("old", b"Storage Policy 'old' is deprecated"), ("none", b"Invalid X-Storage-Policy 'none'")],
)
def test_a_policy_that_no_container_may_have_is_refused(swift: Client, policy: str, text: bytes) -> None:
    answer = swift("PUT refused", {"X-Storage-Policy": policy})
    assert (answer.status, answer.body) == (400, text)
    assert swift("HEAD refused").status == 404


@pytest.mark.parametrize(("policy", "index", "count"), [("gold", 0, 3), ("silver", 1, 2), ("bronze", 2, 4)])
def test_objects_lie_where_their_policys_ring_says(
    store: LoopbackStore, swift: Client, policy: str, index: int, count: int
) -> None:
    put_container(swift, f"in-{policy}", policy)
    assert swift(f"PUT in-{policy}/o", {"X-Object-Meta-A": "1"}, b"0123456789").status == 201
    wait_for(lambda: len(holders(store, index, f"in-{policy}", "o")) == count, "all replicas")
    assert [len(holders(store, other, f"in-{policy}", "o")) for other in range(3) if other != index] == [0, 0]
    ring = store.rings["object" if index == 0 else f"object-{index}"]
    partition = ring.partition("AUTH_test", f"in-{policy}", "o")
    wanted = {(device.host, device.name) for device in ring.primaries(partition)}
    assert {path.parts[-6:-4] for path in holders(store, index, f"in-{policy}", "o")} == wanted
    assert swift(f"GET in-{policy}/o", {"Range": "bytes=2-4"}).body == b"234"
    assert swift(f"POST in-{policy}/o", {"X-Object-Meta-B": "2"}).status == 202
    assert swift(f"HEAD in-{policy}/o").headers["x-object-meta-b"] == "2"
    listed = json.loads(swift(f"GET in-{policy}?format=json").body)
    assert [(entry["name"], entry["bytes"]) for entry in listed] == [("o", 10)]
    assert swift(f"DELETE in-{policy}/o").status == 204
    assert swift(f"GET in-{policy}/o").status == 404
    assert swift(f"DELETE in-{policy}").status == 204


def test_every_replica_of_a_container_hears_of_an_object_with_fewer_replicas(
    store: LoopbackStore, swift: Client
) -> None:
    put_container(swift, "few", "silver")
    before = len(store.log("container"))
    assert swift("PUT few/o", body=b"x").status == 201
    rows = [line for line in store.log("container")[before:] if line["method"] == "PUT" and "few/o" in line["path"]]
    assert len({line["local"] for line in rows}) == 3


def test_copies_large_objects_and_links_cross_policies(store: LoopbackStore, swift: Client) -> None:
    put_container(swift, "from-silver", "silver")
    put_container(swift, "to-gold", "gold")
    swift("PUT from-silver/p-a", {"X-Object-Meta-A": "1"}, b"first ")
    swift("PUT from-silver/p-b", body=b"second")
    copied = swift("COPY from-silver/p-a", {"Destination": "to-gold/a"})
    assert copied.status == 201
    assert swift("GET to-gold/a").body == b"first "
    assert swift("HEAD to-gold/a").headers["x-object-meta-a"] == "1"
    assert (len(holders(store, 0, "to-gold", "a")), len(holders(store, 1, "to-gold", "a"))) == (3, 0)
    manifest = json.dumps([{"path": f"from-silver/p-{name}"} for name in "ab"]).encode()
    assert swift("PUT to-gold/slo?multipart-manifest=put", body=manifest).status == 201
    assert swift("PUT to-gold/dlo", {"X-Object-Manifest": "from-silver/p-"}, b"").status == 201
    assert swift("PUT to-gold/link", {"X-Symlink-Target": "from-silver/p-b"}, b"").status == 201
    assert [swift(f"GET to-gold/{name}").body for name in ("slo", "dlo", "link")] == [
        b"first second",
        b"first second",
        b"second",
    ]


def test_versions_are_kept_in_the_policy_of_their_container(swift: Client) -> None:
    put_container(swift, "versioned", "silver")
    assert swift("POST versioned", {"X-Versions-Enabled": "true"}).status == 204
    for body in (b"old", b"new"):
        assert swift("PUT versioned/o", body=body).status == 201
    versions = json.loads(swift("GET versioned?versions&format=json").body)
    ids = {entry["hash"]: entry["version_id"] for entry in versions}
    assert len(ids) == 2
    assert {swift(f"GET versioned/o?version-id={each}").body for each in ids.values()} == {b"old", b"new"}


def test_an_account_counts_by_policy(store: LoopbackStore) -> None:
    other = Client(store, "test2:tester2", "testing2")
    other("PUT g")
    other("PUT s", {"X-Storage-Policy": "silver"})
    other("PUT s/o", body=b"12345")
    names = ("container-count", "object-count", "bytes-used")

    def counts(policy: str) -> list[str]:
        headers = other("HEAD ").headers
        return [headers.get(f"x-account-storage-policy-{policy}-{name}", "") for name in names]

    wait_for(lambda: counts("silver") == ["1", "1", "5"], "the report of the container")
    assert (counts("gold"), counts("bronze")) == (["1", "0", "0"], ["", "", ""])


def test_info_names_the_policies_that_a_new_container_may_have(store: LoopbackStore) -> None:
    found = json.loads(store.ask("GET", "/info").body)["swift"]["policies"]
    assert found == [
        {"name": "gold", "aliases": "gold, three", "default": True},
        {"name": "silver", "aliases": "silver"},
        {"name": "bronze", "aliases": "bronze"},
    ]


def test_daemons_replicate_audit_and_expire_every_policy(busy_store: LoopbackStore) -> None:
    store, swift = busy_store, Client(busy_store)
    put_container(swift, "cared", "silver")
    swift("PUT cared/lost", body=b"lost")
    swift("PUT cared/rotten", body=b"rotten")
    swift("PUT cared/short", {"X-Delete-After": "1"}, b"short")
    wait_for(lambda: len(holders(store, 1, "cared", "lost")) == 2, "both replicas")
    (gone, _), (rotten, _) = (holders(store, 1, "cared", name) for name in ("lost", "rotten"))
    for file in gone.iterdir():
        file.unlink()
    (file,) = rotten.glob("*.data")
    file.write_bytes(b"R" + file.read_bytes()[1:])
    wait_for(lambda: len(holders(store, 1, "cared", "lost")) == 2, "the replica that was lost")
    wait_for(lambda: any(store.root.glob("data/*/*/quarantined/objects-1/*")), "the quarantine")
    wait_for(lambda: len(holders(store, 1, "cared", "rotten")) == 2, "a sound replica")
    wait_for(lambda: not holders(store, 1, "cared", "short"), "the expiry")
    assert convergence.await_agreement(store.root / "data", store.rings, PATIENCE_S) == []


def test_a_reaped_account_leaves_no_object_of_any_policy(busy_store: LoopbackStore) -> None:
    store = busy_store
    owner, admin = Client(store, "other:someone", "secret"), Client(store, "admin:admin", "admin")
    for name in ("gold", "silver"):
        owner(f"PUT {name}", {"X-Storage-Policy": name})
        assert owner(f"PUT {name}/o", body=b"x").status == 201
    assert admin("DELETE ", account="AUTH_other").status == 204
    digests = [path_hash(("AUTH_other", name, "o"), store.topology.ring.hash_suffix) for name in ("gold", "silver")]
    wait_for(lambda: not any(list(store.root.glob(f"data/*/*/objects*/*/*/{d}/*.data")) for d in digests), "the reaper")


@pytest.mark.parametrize(
    ("entries", "named"),
    [
        ([{"name": "a"}, {"name": "A", "index": 1}], "same name or index"),
        ([{"name": "a"}, {"name": "b", "index": 0}], "same name or index"),
        ([{"name": "a", "index": 1}], "the index 0"),
        ([{"name": "a", "default": True}, {"name": "b", "default": True}], "one policy is the default"),
        ([{"name": "a", "default": True, "deprecated": True}], "not deprecated"),
        ([{"name": "a", "replicas": -1}], "numbers from 0 on"),
        ([{"name": "a", "kind": "mirrors"}], "kind is 'replication' or 'erasure_coding'"),
        ([{"name": "a", "data_fragments": 2}], "fragments need kind"),
        ([{"name": "a", **CODED, "replicas": 3}], "not both"),
        ([{"name": "a", **CODED, "parity_fragments": 0}], "from 1 on"),
        ([{"name": "a", **CODED, "segment_bytes": 0}], "from 1 on"),
        ([{"name": "a", **CODED, "data_fragments": 32}], "32 fragments at most"),
    ],
)
def test_policies_that_cannot_be_are_named(entries: list[dict], named: str) -> None:
    with pytest.raises(PolicyError, match=named):
        parse(entries)
