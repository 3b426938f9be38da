"""A PUT in two phases: what the proxy writes is what the object server reads, however it is cut."""

import asyncio
from collections.abc import Sequence

import pytest

from storage_cluster.servers.http import multiphase
from storage_cluster.servers.http.messages import Body, ClientGone, Refusal
from storage_cluster.servers.http.multiphase import Documents

BOUNDARY = "0123456789abcdef"
FOOTERS = {"Etag": "e", "X-Object-Sysmeta-Ec-Frag-Index": "1"}
CONTENT = b"\r\n--not it\r\n" + bytes(range(256))
OPENING, CLOSING = multiphase.before_body(BOUNDARY) + CONTENT, multiphase.after_body(BOUNDARY, FOOTERS)
LAST = multiphase.confirmation(BOUNDARY)


def read(pieces: Sequence[bytes]) -> tuple[bytes, dict[str, str], list[str]]:
    """The fragments, the footers, and what the server did in which order."""
    steps: list[str] = []

    async def chunks():
        for piece in pieces:
            yield piece
            steps.append("piece")

    async def ask_for_more() -> None:
        steps.append("100")

    async def run() -> tuple[bytes, dict[str, str], list[str]]:
        documents = Documents(Body(chunks(), None, ask_for_more=ask_for_more), BOUNDARY)
        content = b"".join([chunk async for chunk in documents.chunks()])
        footers = await documents.footers()
        await documents.await_confirmation()
        return content, footers, steps

    return asyncio.run(run())


@pytest.mark.parametrize("content", [CONTENT, b"", b"x"])
def test_documents_come_in_pieces_of_any_size(content: bytes) -> None:
    whole = multiphase.before_body(BOUNDARY) + content + CLOSING + LAST
    for size in (1, 2, 7, 64, len(whole)):
        found = read([whole[start : start + size] for start in range(0, len(whole), size)])
        assert found[:2] == (content, FOOTERS)


def test_the_rest_is_asked_for_once_the_footers_are_there() -> None:
    _, _, steps = read([OPENING, CLOSING, LAST])
    assert steps == ["piece", "100", "piece", "piece"]  # the last document is read only when it was asked for


@pytest.mark.parametrize(
    ("whole", "failure"),
    [
        (OPENING + CLOSING, ClientGone),
        (OPENING, ClientGone),
        (OPENING + CLOSING + LAST.replace(b"put_commit", b"put_other"), Refusal),
        (OPENING + CLOSING.replace(b'"e"', b'"f"') + LAST, Refusal),
        (OPENING + LAST, ClientGone),
        (CLOSING[2:] + LAST, Refusal),
        (b"nothing of it", Refusal),
    ],
)
def test_what_is_not_whole_is_not_confirmed(whole: bytes, failure: type[Exception]) -> None:
    with pytest.raises(failure):
        read([whole])


def test_footers_have_a_limit_and_are_json() -> None:
    long = multiphase.after_body(BOUNDARY, {"A": "x" * 70_000})
    for footers, status in ((long, 413), (CLOSING.replace(b"Content-MD5", b"X-Other").replace(b"{", b"["), 400)):
        with pytest.raises(Refusal) as raised:
            read([OPENING, footers, LAST])
        assert raised.value.status == status
