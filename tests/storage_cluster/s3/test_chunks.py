"""The framing of signed uploads: AWS's own examples, botocore's framing, what a decoder refuses."""

import io
import itertools

import pytest
from botocore.httpchecksum import AwsChunkedWrapper, Crc32Checksum
from hypothesis import given
from hypothesis import strategies as st

from storage_cluster.s3 import chunks
from storage_cluster.s3.chunks import ChunkDecoder, ChunkError, ChunkSigner
from storage_cluster.s3.signatures import Credentials, Scope, SignableRequest, signed_headers

SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
SCOPE = Scope("20130524", "us-east-1")
TIME = "20130524T000000Z"
EXAMPLE = b"a" * 66_560
CHUNK_LEN = 65_536
CHECKSUM = ("x-amz-checksum-crc32c", "sOO8/Q==")


def signer(seed: str = "0" * 64) -> ChunkSigner:
    return ChunkSigner(SECRET, SCOPE, TIME, seed)


def frame(payload: bytes, chunk_len: int, form: str) -> bytes:
    pieces = chunks.split_chunks([memoryview(payload)], chunk_len)
    trailers = [CHECKSUM] if form.endswith("TRAILER") else []
    return b"".join(chunks.frame(pieces, None if "UNSIGNED" in form else signer(), trailers))


def decode(framed: bytes, form: str, step: int = 1 << 20) -> tuple[bytes, ChunkDecoder]:
    made = ChunkDecoder(None if "UNSIGNED" in form else signer(), has_trailer=form.endswith("TRAILER"))
    pieces = [made.feed(framed[at : at + step]) for at in range(0, len(framed), step)]
    return b"".join(itertools.chain(*pieces)), made


FORMS = (chunks.SIGNED, chunks.SIGNED_TRAILER, chunks.UNSIGNED_TRAILER)


@pytest.mark.parametrize(
    ("form", "more", "seed", "expected", "trailer"),
    [
        (
            chunks.SIGNED,
            [("x-amz-decoded-content-length", "66560"), ("Content-Length", "66824")],
            "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9",
            [
                "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
                "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
                "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9",
            ],
            "",
        ),
        (
            chunks.SIGNED_TRAILER,
            [("x-amz-decoded-content-length", "66560"), ("x-amz-trailer", "x-amz-checksum-crc32c")],
            "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e",
            [
                "b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2",
                "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7",
                "2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992",
            ],
            "d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435",
        ),
    ],
)
def test_the_examples_that_aws_publishes(
    form: str, more: list[tuple[str, str]], seed: str, expected: list[str], trailer: str
) -> None:
    headers = [
        ("Host", "s3.amazonaws.com"),
        ("Content-Encoding", "aws-chunked"),
        ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
        *more,
    ]
    request = SignableRequest("PUT", "/examplebucket/chunkObject.txt", "", headers)
    signed = signed_headers(request, Credentials("AKIAIOSFODNN7EXAMPLE", SECRET), "us-east-1", TIME, form)
    assert signed["Authorization"][-64:] == seed
    made = signer(seed)
    parts = [*chunks.split_chunks([memoryview(EXAMPLE)], CHUNK_LEN), []]
    assert [made.sign(part) for part in parts] == expected
    assert not trailer or made.sign_trailers([CHECKSUM]) == trailer


def test_the_length_of_the_example_that_aws_publishes() -> None:
    assert chunks.framed_len(len(EXAMPLE), CHUNK_LEN, signed=True) == 66_824


@pytest.mark.parametrize("size", [0, 1, 999, 1000, 1001, 5000])
def test_the_unsigned_form_is_botocores(size: int) -> None:
    payload = bytes(range(256)) * 20
    wrapped = AwsChunkedWrapper(
        io.BytesIO(payload[:size]), checksum_cls=Crc32Checksum, checksum_name="x-amz-checksum-crc32", chunk_size=1000
    )
    theirs = wrapped.read()
    checksum = Crc32Checksum()
    checksum.update(payload[:size])
    trailers = [("x-amz-checksum-crc32", checksum.b64digest())]
    pieces = chunks.split_chunks([memoryview(payload)[:size]], 1000)
    assert b"".join(chunks.frame(pieces, None, trailers)) == theirs
    assert chunks.framed_len(size, 1000, signed=False, trailers=trailers) == len(theirs)


@given(st.sampled_from(FORMS), st.binary(max_size=300), st.integers(1, 100), st.integers(1, 400))
def test_what_is_framed_is_decoded(form: str, payload: bytes, chunk_len: int, step: int) -> None:
    framed = frame(payload, chunk_len, form)
    trailers = [CHECKSUM] if form.endswith("TRAILER") else []
    assert chunks.framed_len(len(payload), chunk_len, signed="UNSIGNED" not in form, trailers=trailers) == len(framed)
    decoded, decoder = decode(framed, form, step)
    assert (decoded, decoder.is_complete, decoder.trailers) == (payload, True, dict(trailers))


@given(st.lists(st.binary(max_size=50), max_size=5), st.integers(1, 60))
def test_chunks_of_a_payload_in_parts_are_all_full_but_the_last(parts: list[bytes], chunk_len: int) -> None:
    made = list(chunks.split_chunks(map(memoryview, parts), chunk_len))
    assert b"".join(itertools.chain(*made)) == b"".join(parts)
    lengths = [sum(map(len, chunk)) for chunk in made]
    assert all(length == chunk_len for length in lengths[:-1])
    assert all(0 < length <= chunk_len for length in lengths)


@pytest.mark.parametrize("form", FORMS)
def test_what_is_cut_is_never_complete(form: str) -> None:
    framed = frame(b"hello world", 5, form)
    for end in range(len(framed)):
        decoded, decoder = decode(framed[:end], form)
        assert not decoder.is_complete
        assert b"hello world".startswith(decoded)


@given(st.sampled_from(FORMS[:2]), st.integers(0, 1000), st.integers(1, 255))
def test_a_changed_byte_of_a_signed_upload_is_refused(form: str, at: int, change: int) -> None:
    framed = bytearray(frame(b"hello world", 5, form))
    framed[at % len(framed)] ^= change
    try:
        decoded, decoder = decode(bytes(framed), form)
    except ChunkError:
        return
    assert not decoder.is_complete or decoded == b"hello world"


@pytest.mark.parametrize(
    ("form", "framed", "is_signature", "problem"),
    [
        (chunks.UNSIGNED_TRAILER, b"x\r\n", False, "no chunk's size"),
        (chunks.UNSIGNED_TRAILER, b"-1\r\n", False, "no chunk's size"),
        (chunks.UNSIGNED_TRAILER, b"\r\n", False, "no chunk's size"),
        (chunks.UNSIGNED_TRAILER, b"1\r\nabc", False, "longer than its size"),
        (chunks.UNSIGNED_TRAILER, b"0\r\nhello\r\n", False, "no trailer"),
        (chunks.UNSIGNED_TRAILER, b"0\r\n\r\nmore", False, "bytes follow"),
        (chunks.UNSIGNED_TRAILER, b"1" * 20_000, False, "line is too long"),
        (chunks.SIGNED, b"1\r\na\r\n", True, "no signature"),
        (chunks.SIGNED, b"1;chunk-signature=00\r\na\r\n", True, "signature is wrong"),
    ],
)
def test_a_malformed_payload_is_refused_with_the_reason(
    form: str, framed: bytes, is_signature: bool, problem: str
) -> None:
    with pytest.raises(ChunkError, match=problem) as raised:
        decode(framed, form)
    assert raised.value.is_signature == is_signature


def test_a_trailer_that_was_not_announced_is_refused() -> None:
    with pytest.raises(ChunkError, match="a trailer follows"):
        ChunkDecoder().feed(b"0\r\na:b\r\n\r\n")


def test_a_signed_trailer_without_its_signature_is_refused() -> None:
    framed = frame(b"hello", 5, chunks.SIGNED_TRAILER)
    start, _, end = framed.partition(chunks.TRAILER_SIGNATURE.encode())
    with pytest.raises(ChunkError, match="trailer's signature") as raised:
        decode(start + end.partition(b"\r\n")[2], chunks.SIGNED_TRAILER)
    assert raised.value.is_signature
