"""A whole store with its daemons: after troubles everything is back on its primaries, and nothing else is anywhere."""

import hashlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage_cluster import convergence, ring_builder
from storage_cluster import ring as rings
from storage_cluster.convergence import Expected
from storage_cluster.topology import DAEMONS, DAEMONS_SERVICE, Device
from testkit.loopback_store import STORAGE_HOSTS, LoopbackStore
from tests.helpers.polling import wait_for

ACCOUNT = "/v1/AUTH_test"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LoopbackStore]:
    with LoopbackStore(tmp_path, DAEMONS) as running:
        yield running


class Client:
    """Writes objects, and remembers which writes were confirmed."""

    def __init__(self, store: LoopbackStore) -> None:
        self._store = store
        self._token = store.token()
        self.confirmed: dict[str, str | None] = {}
        self("PUT", "/c")

    def __call__(self, method: str, path: str, headers: dict[str, str] | None = None, body: bytes = b"") -> int:
        return self._store.ask(method, ACCOUNT + path, {"X-Auth-Token": self._token} | (headers or {}), body).status

    def put(self, name: str, body: bytes, headers: dict[str, str] | None = None) -> None:
        assert self("PUT", f"/c/{name}", headers, body) == 201
        self.confirmed[name] = hashlib.md5(body).hexdigest()

    def delete(self, name: str) -> None:
        assert self("DELETE", f"/c/{name}") == 204
        self.confirmed[name] = None

    @property
    def expected(self) -> list[Expected]:
        return [Expected(("AUTH_test", "c", name), etag) for name, etag in self.confirmed.items()]


def converge(store: LoopbackStore, client: Client) -> None:
    data, now = store.root / "data", store.rings

    def differences() -> list[str]:
        return convergence.disagreements(data, now) + convergence.losses(data, now, client.expected)

    wait_for(lambda: not differences(), lambda: "\n".join(differences()))


def stop_daemons(store: LoopbackStore) -> None:
    """So that what is done meanwhile is seen before it is mended."""
    for host in STORAGE_HOSTS:
        store.stop(host, DAEMONS_SERVICE)


def start_daemons(store: LoopbackStore) -> None:
    for host in STORAGE_HOSTS:
        store.restart(host, DAEMONS_SERVICE)


def test_what_went_to_handoffs_while_a_host_was_down_comes_home(store: LoopbackStore) -> None:
    client = Client(store)
    for number in range(6):
        client.put(f"before{number}", b"first")
    converge(store, client)
    stop_daemons(store)
    for service in ("object", "container", "account"):
        store.stop("storage2", service)
    for number in range(6):
        client.put(f"during{number}", bytes([number]) * 1000)
    client.put("before0", b"changed")
    client.delete("before1")
    assert client("POST", "/c/before2", {"X-Object-Meta-Colour": "blue"}) == 202
    assert client("PUT", "/new") == 201
    data = store.root / "data"
    assert any("handoff" in line for line in convergence.disagreements(data, store.rings))
    assert convergence.losses(data, store.rings, client.expected)
    for service in ("account", "container", "object"):
        store.restart("storage2", service)
    start_daemons(store)
    converge(store, client)


def test_a_wiped_device_is_filled_again(store: LoopbackStore) -> None:
    client = Client(store)
    for number in range(12):
        client.put(f"o{number}", bytes([number]) * 1000)
    converge(store, client)
    stop_daemons(store)
    for service in ("object", "container", "account"):
        store.stop("storage1", service)
    shutil.rmtree(store.root / "data" / "storage1" / "d1")
    assert convergence.disagreements(store.root / "data", store.rings)
    for service in ("account", "container", "object"):
        store.restart("storage1", service)
    start_daemons(store)
    converge(store, client)


def test_a_killed_host_finds_its_way_from_half_written_files(store: LoopbackStore, tmp_path: Path) -> None:
    client = Client(store)
    for number in range(8):
        client.put(f"o{number}", b"x" * 100)
    converge(store, client)
    stop_daemons(store)
    client.put("last", b"y")
    devices, snapshot = store.root / "data" / "storage1", tmp_path / "as after SIGKILL"
    shutil.copytree(devices, snapshot)  # the databases are open, their logs are not written back
    logs = sorted(snapshot.glob("*/containers/**/*.db-wal"))
    assert logs
    for log in logs:
        log.write_bytes(log.read_bytes()[:-100])
    for device in snapshot.iterdir():
        (device / "tmp" / "half").write_bytes(b"half")
        (device / "async_pending").mkdir(exist_ok=True)
        (device / "async_pending" / "half.tmp").write_bytes(b"{")
    for service in ("object", "container", "account"):
        store.stop("storage1", service)
    shutil.rmtree(devices)
    snapshot.rename(devices)
    for service in ("account", "container", "object"):
        store.restart("storage1", service)
    start_daemons(store)
    converge(store, client)
    assert not list(devices.rglob("*half*"))


def test_a_new_ring_moves_the_data_and_nothing_is_missed_meanwhile(store: LoopbackStore) -> None:
    client = Client(store)
    for number in range(12):
        client.put(f"o{number}", bytes([number]) * 1000)
    converge(store, client)
    (store.root / "data" / "storage3" / "d3" / "tmp").mkdir(parents=True)
    before = list(store.rings.values())
    devices = [*before[0].devices[1:], Device("storage3", "d3", 3)]  # one goes, one comes
    rings.save([ring_builder.rebalance(ring, devices) for ring in before], store.root / "data" / rings.FILE_NAME)
    for number in range(12):
        assert client("GET", f"/c/o{number}") == 200
    converge(store, client)
    gone = before[0].devices[0]
    assert not list(store.root.glob(f"data/{gone.host}/{gone.name}/*/*/*/*/*.d*"))


def test_bit_rot_is_found_and_mended_without_anybody_asking(store: LoopbackStore) -> None:
    client = Client(store)
    client.put("o", b"precious" * 100)
    converge(store, client)
    rotten = next(store.root.glob("data/*/*/objects/**/*.data"))
    content = bytearray(rotten.read_bytes())
    content[300] ^= 4
    rotten.write_bytes(content)
    wait_for(lambda: bool(_list_quarantined(store, "objects")), "the quarantine")
    converge(store, client)
    assert len(_list_quarantined(store, "objects")) == 1


def test_a_damaged_container_is_put_aside_and_made_anew(store: LoopbackStore) -> None:
    client = Client(store)
    for number in range(5):
        client.put(f"o{number}", b"x")
    converge(store, client)
    stop_daemons(store)
    store.stop("storage3", "container")
    (file,) = (path for path in store.root.glob("data/storage3/*/containers/*/*/*/*.db") if _mentions(path, b"o4"))
    content = bytearray(file.read_bytes())
    at = content.index(b"o4")
    content[at] ^= 1
    file.write_bytes(content)
    store.restart("storage3", "container")
    start_daemons(store)
    wait_for(lambda: bool(_list_quarantined(store, "containers")), "the quarantine")
    converge(store, client)
    assert len(_list_quarantined(store, "containers")) == 1


def _list_quarantined(store: LoopbackStore, kind: str) -> list[Path]:
    return list(store.root.glob(f"data/*/*/quarantined/{kind}/*"))


def _mentions(path: Path, word: bytes) -> bool:
    return word in path.read_bytes()


def test_an_object_whose_time_is_over_is_deleted(store: LoopbackStore) -> None:
    client = Client(store)
    client.put("stays", b"x")
    client.put("goes", b"x", {"X-Delete-After": "1"})
    client.confirmed["goes"] = None
    converge(store, client)
    assert (client("GET", "/c/stays"), client("GET", "/c/goes")) == (200, 404)


def test_a_deleted_account_is_emptied(store: LoopbackStore) -> None:
    client = Client(store)
    client.put("o", b"x")
    converge(store, client)
    ring = store.rings["account"]
    partition = ring.partition("AUTH_test")
    for device in ring.primaries(partition):
        path = f"/{device.name}/{partition}/AUTH_test"
        headers = {"X-Timestamp": f"{time.time():.5f}"}
        answer = store.ask("DELETE", path, headers, service="account", host=device.host)
        assert answer.status in (204, 404)  # 404: a replicator has brought the deletion already
    client.confirmed["o"] = None
    converge(store, client)
