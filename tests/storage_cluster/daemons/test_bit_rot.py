"""A replica whose bits have flipped: what is read of it is never taken for the object."""

import http.client
from pathlib import Path

import pytest

from testkit.loopback_store import LoopbackStore
from tests.helpers.polling import wait_for

ACCOUNT = "/v1/AUTH_test"


def store_object(store: LoopbackStore, body: bytes) -> dict[str, str]:
    """An object of this body, three replicas of it; headers to ask for it."""
    headers = {"X-Auth-Token": store.token()}
    assert store.ask("PUT", f"{ACCOUNT}/c", headers).status == 201
    assert store.ask("PUT", f"{ACCOUNT}/c/o", headers, body).status == 201
    wait_for(lambda: len(files(store)) == 3, "three replicas")
    return headers


def files(store: LoopbackStore) -> list[Path]:
    return sorted(store.root.glob("data/*/*/objects/**/*.data"))


def flip(file: Path, at: int) -> None:
    content = bytearray(file.read_bytes())
    content[at] ^= 1
    file.write_bytes(content)


def list_quarantined(store: LoopbackStore) -> list[Path]:
    return list(store.root.glob("data/*/*/quarantined/objects/*/*.data"))


@pytest.mark.parametrize("at", [100, -40], ids=["body", "footer"])
def test_a_small_object_is_read_from_another_replica(store: LoopbackStore, at: int) -> None:
    headers = store_object(store, b"precious" * 100)
    flip(files(store)[0], at)
    for _ in range(30):
        answer = store.ask("GET", f"{ACCOUNT}/c/o", headers)
        assert (answer.status, answer.body) == (200, b"precious" * 100)
        if list_quarantined(store):
            break
    assert len(list_quarantined(store)) == 1
    assert len(files(store)) == 2


def test_a_large_object_is_whole_and_right_or_seen_to_be_neither(store: LoopbackStore) -> None:
    body = bytes(range(256)) * 8000
    headers = store_object(store, body)
    flip(files(store)[1], 700_000)
    broken = 0
    for _ in range(30):
        try:
            answer = store.ask("GET", f"{ACCOUNT}/c/o", headers)
        except (http.client.IncompleteRead, ConnectionError):
            broken += 1
            assert len(list_quarantined(store)) == 1
        else:
            assert (answer.status, answer.body == body) == (200, True)
        if broken:
            break
    assert broken == 1
    assert store.ask("GET", f"{ACCOUNT}/c/o", headers).body == body


def test_a_new_version_of_a_damaged_object_is_taken(store: LoopbackStore) -> None:
    headers = store_object(store, b"old")
    for file in files(store):
        flip(file, -40)
    assert store.ask("PUT", f"{ACCOUNT}/c/o", headers, b"new").status == 201
    assert store.ask("GET", f"{ACCOUNT}/c/o", headers).body == b"new"
