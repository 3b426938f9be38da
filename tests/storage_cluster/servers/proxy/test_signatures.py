"""Signatures: in hex or Base64, by any allowed digest, with any of the keys, for what was signed and nothing else."""

import asyncio
import base64
import hmac

import pytest

from storage_cluster.servers.http.messages import Refusal
from storage_cluster.servers.proxy.signatures import DIGESTS, Key, Signature, parse_expiry
from tests.helpers.fake_store import call

KEY, OTHER = Key("key", ("a",)), Key("other", ("a", "c"))


@pytest.mark.parametrize("digest", DIGESTS)
def test_who_signed(digest: str) -> None:
    made = hmac.digest(b"other", b"text", digest)
    for shown in (
        made.hex(),
        f"{digest}:{base64.b64encode(made).decode()}",
        f"{digest}:{base64.urlsafe_b64encode(made).decode()}",
    ):
        signature = Signature.parse(shown)
        assert signature is not None
        assert signature.key_of(["else", "text"], [KEY, OTHER]) is OTHER
        assert signature.key_of(["text"], [KEY]) is None
        assert signature.key_of(["else"], [KEY, OTHER]) is None


@pytest.mark.parametrize("text", ["", "zz", "abcd", "md5:abcd", f"sha1:{'*' * 5}", "0" * 32])
def test_what_is_no_signature(text: str) -> None:
    signature = Signature.parse(text)
    assert signature is None or signature.key_of(["text"], [KEY, OTHER]) is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1700000000", 1_700_000_000), ("2023-11-14T22:13:20Z", 1_700_000_000), ("2023-11-14", None), ("", None)],
)
def test_until_when(text: str, seconds: int | None) -> None:
    assert parse_expiry(text) == seconds


@pytest.mark.parametrize(
    ("key", "path", "allowed"),
    [(KEY, "/v1/a/d/o", True), (KEY, "/v1/b/c/o", False), (OTHER, "/v1/a/c/o", True), (OTHER, "/v1/a/d/o", False)],
)
def test_a_key_opens_its_scope(key: Key, path: str, allowed: bool) -> None:
    asked = key.hook()(call(f"GET {path}"), None)
    if allowed:
        asyncio.run(asked)
    else:
        with pytest.raises(Refusal):
            asyncio.run(asked)
