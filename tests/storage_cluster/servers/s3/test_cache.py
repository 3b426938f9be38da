"""The gateway's object cache: what it keeps, what it never sends, what it counts."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from botocore.exceptions import ClientError
from multidict import CIMultiDict

from storage_cluster.servers.http.messages import Reply
from storage_cluster.servers.s3.cache import ObjectCache
from testkit.loopback_store import LoopbackStore
from tests.helpers.s3_clients import client_of

NAMES = ("AUTH_test", "bucket", "key")


def headers(etag: str, length: int, timestamp: str = "1.0") -> CIMultiDict[str]:
    return CIMultiDict({"Etag": etag, "X-Backend-Timestamp": timestamp, "Content-Length": str(length)})


def read_through(cache: ObjectCache, names: tuple[str, ...], etag: str, pieces: list[bytes], length: int) -> bytes:
    async def body() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    reply = Reply(200, headers(etag, length), body())
    cache.keep_body(names, reply)
    return asyncio.run(reply.read())


def test_a_body_is_kept_once_all_of_it_has_passed() -> None:
    cache = ObjectCache(80)
    assert read_through(cache, NAMES, "e", [b"12", b"345"], 5) == b"12345"
    assert cache.body(NAMES, headers("e", 5)) == b"12345"
    assert cache.counters.bytes == 5


def test_half_a_body_is_not_kept() -> None:
    cache = ObjectCache(80)
    read_through(cache, NAMES, "e", [b"12"], 5)
    assert cache.body(NAMES, headers("e", 5)) is None


def test_what_has_changed_is_not_sent() -> None:
    cache = ObjectCache(80)
    read_through(cache, NAMES, "e", [b"12345"], 5)
    assert cache.body(NAMES, headers("f", 5)) is None
    assert cache.body(NAMES, headers("e", 5, "2.0")) is None


def test_room_is_made_by_what_was_not_used_longest() -> None:
    cache = ObjectCache(80)
    for name in "abcdefghi":
        read_through(cache, (name,), "e", [b"0123456789"], 10)
        cache.body(("a",), headers("e", 10))
    assert ("a",) in cache
    assert ("b",) not in cache
    assert (cache.counters.bytes, cache.counters.objects) == (80, 8)


def test_an_object_that_would_fill_the_cache_is_not_kept() -> None:
    cache = ObjectCache(80)
    read_through(cache, NAMES, "e", [b"0" * 11], 11)
    assert NAMES not in cache


def test_reads_are_counted_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage_cluster.servers.s3.cache.WRITE_AFTER_S", 0.01)
    cache = ObjectCache(80, tmp_path / "s3.cache.json")

    async def read_twice() -> None:
        cache.count_read(is_hit=False)
        cache.count_read(is_hit=True)
        await asyncio.sleep(0.05)

    asyncio.run(read_twice())
    found = json.loads((tmp_path / "s3.cache.json").read_text("utf-8"))
    assert found == {"room_bytes": 80, "bytes": 0, "objects": 0, "hits": 1, "misses": 1}


def test_a_cached_object_is_as_the_store_has_it(tmp_path: Path) -> None:
    with LoopbackStore(tmp_path, cache_mib=1) as store:
        client = client_of(store)
        client.create_bucket(Bucket="cached")
        for body in (b"first", b"second"):
            client.put_object(Bucket="cached", Key="k", Body=body)
            reads = [client.get_object(Bucket="cached", Key="k") for _ in range(3)]
            assert [(each["Body"].read(), each["ContentLength"]) for each in reads] == [(body, len(body))] * 3
        gets = [line for line in store.log("object") if line["method"] == "GET" and "/cached/k" in line["path"]]
        assert len(gets) == 2
        assert client.get_object(Bucket="cached", Key="k", Range="bytes=1-2")["Body"].read() == b"ec"
        client.delete_object(Bucket="cached", Key="k")
        with pytest.raises(ClientError):
            client.get_object(Bucket="cached", Key="k")
