"""Calls, replies, bodies, and the pipeline that they go through."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from multidict import CIMultiDict

from storage_cluster.servers.http.messages import Body, Call, Handler, Identity, Refusal, Reply, reply
from storage_cluster.servers.proxy.pipeline import pipeline
from storage_cluster.servers.proxy.server import names_of
from tests.helpers.fake_store import FakeStore, ask, call


def test_a_body_lets_the_client_go_on_once() -> None:
    order: list[str] = []

    async def go_on() -> None:
        order.append("100")

    async def chunks() -> AsyncIterator[bytes]:
        order.append("read")
        yield b"ab"
        yield b"c"

    body = Body(chunks(), 3, go_on)

    async def run() -> bytes:
        await body.proceed()
        return await body.read(3)

    assert asyncio.run(run()) == b"abc"
    assert order == ["100", "read"]
    assert body.bytes_in == 3


@pytest.mark.parametrize("length", [4, None])
def test_a_body_that_is_too_long_is_refused(length: int | None) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"abcd"

    with pytest.raises(Refusal) as refused:
        asyncio.run(Body(chunks(), length).read(3))
    assert refused.value.status == 413


def test_a_derived_call_keeps_who_asks_and_drops_what_is_asked() -> None:
    first = Call(
        "GET",
        ("a", "c", "o"),
        {"multipart-manifest": "get"},
        CIMultiDict({"Range": "bytes=0-1", "User-Agent": "curl", "X-Auth-Token": "secret"}),
        transaction_id="tx1",
        identity=Identity("t:u", frozenset({"a"})),
    )
    second = first.derive(method="PUT", names=("a", "c", "p"), headers={"X-A": "1"}, body=b"xyz", source="SLO")
    assert (second.path, second.query, dict(second.headers)) == ("/v1/a/c/p", {}, {"User-Agent": "curl", "X-A": "1"})
    assert (second.transaction_id, second.identity, second.source) == ("tx1", first.identity, "SLO")
    assert second.shared is first.shared
    assert second.body.length == 3


def test_a_privileged_call_passes_where_the_users_own_does_not() -> None:
    async def nobody(_: Call, __: str | None) -> None:
        raise Refusal(403)

    first = call("GET /v1/a/c/o")
    first.authorize = nobody
    with pytest.raises(Refusal):
        asyncio.run(first.derive().check_access(None))
    privileged = first.derive(privileged=True)
    asyncio.run(privileged.check_access(None))
    assert privileged.owner


def test_a_refusal_inside_is_a_reply_outside() -> None:
    seen: list[int] = []

    async def outer(asked: Call, inner: Handler) -> Reply:
        found = await inner(asked)
        seen.append(found.status)
        return found

    async def middle(asked: Call, inner: Handler) -> Reply:
        if asked.method == "PATCH":
            raise Refusal(405)
        return await inner(asked)

    handler = pipeline([outer, middle], FakeStore())
    assert ask(handler, call("GET /v1/a/c/o")).status == 404
    found = ask(handler, call("PATCH /v1/a/c/o"))
    assert found.body == b"<html><h1>Method Not Allowed</h1><p>The method is not allowed for this resource.</p></html>"
    assert seen == [404, 405]


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("/v1/a", ("a",)),
        ("/v1/a/", ("a",)),
        ("/v1/a/c/", ("a", "c")),
        ("/v1/a/c/o", ("a", "c", "o")),
        ("/v1/a/c//o/", ("a", "c", "/o/")),
        ("/v1/a//o", ()),
        ("/v1", ()),
        ("/info", ()),
    ],
)
def test_names_of_a_path(path: str, names: tuple[str, ...]) -> None:
    assert names_of(path) == names


def test_a_streamed_reply_is_read_whole_and_closed() -> None:
    closed: list[bool] = []

    async def chunks() -> AsyncIterator[bytes]:
        try:
            yield b"a"
            yield b"b"
        finally:
            closed.append(True)

    async def run() -> None:
        left = Reply(200, body=chunks())
        async for _ in left.chunks():
            break
        await left.close()

    assert ask(lambda _: _stream(chunks()), call("GET /v1/a")).body == b"ab"
    asyncio.run(run())
    assert closed == [True, True]
    assert asyncio.run(reply(200, body=b"x").read()) == b"x"


async def _stream(body: AsyncIterator[bytes]) -> Reply:
    return Reply(200, body=body)
