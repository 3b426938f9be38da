"""Forms read as they arrive, however they are cut."""

import asyncio
import itertools
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_cluster.servers.http.messages import Body, Refusal
from storage_cluster.servers.proxy.multipart import FormReader, boundary_of

FORM = (
    b'--bd\r\nContent-Disposition: form-data; name="field"\r\n\r\nvalue\r\n'
    b'--bd\r\nContent-Disposition: form-data; name="f"; filename="a.txt"\r\nContent-Type: x/y\r\n\r\n'
    b"one\r\n--b\r\n\r\ntwo\r\n"
    b'--bd\r\nContent-Disposition: form-data; name="e"; filename=""\r\n\r\n\r\n'
    b"--bd--\r\n"
)
PARTS = [
    ("field", None, None, b"value"),
    ("f", "a.txt", "x/y", b"one\r\n--b\r\n\r\ntwo"),
    ("e", "", None, b""),
]


def read(chunks: list[bytes]) -> list[tuple[str, str | None, str | None, bytes]]:
    async def arriving() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    async def run() -> list[tuple[str, str | None, str | None, bytes]]:
        reader, found = FormReader(Body(arriving(), None), b"bd"), []
        while (part := await reader.next_part()) is not None:
            content = b"".join([chunk async for chunk in reader.content()])
            found.append((part.name, part.filename, part.content_type, content))
        return found

    return asyncio.run(run())


@given(st.lists(st.integers(0, len(FORM)), max_size=8))
def test_a_form_cut_anywhere_is_the_same_form(cuts: list[int]) -> None:
    at = [0, *sorted(cuts), len(FORM)]
    assert read([FORM[start:end] for start, end in itertools.pairwise(at) if end > start]) == PARTS


def test_every_beginning_of_a_form_ends() -> None:
    for end in range(6, len(FORM)):
        assert len(read([FORM[:end]])) <= len(PARTS)


@pytest.mark.parametrize("garbage", [b"", b"garbage", b"--xx\r\n"])
def test_what_begins_without_a_boundary_is_no_form(garbage: bytes) -> None:
    with pytest.raises(Refusal, match="invalid starting boundary"):
        read([garbage])


@pytest.mark.parametrize(
    ("content_type", "boundary"),
    [
        ("multipart/form-data; boundary=abc", b"abc"),
        ('Multipart/Form-Data; boundary="a b"', b"a b"),
        ("multipart/form-data", None),
        ("multipart/mixed; boundary=abc", None),
        ("", None),
    ],
)
def test_the_boundary(content_type: str, boundary: bytes | None) -> None:
    assert boundary_of(content_type) == boundary
