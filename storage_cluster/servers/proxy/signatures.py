"""Verifies signatures made with the keys of an account or container, for TempURL and FormPost.

Whoever knows a key may sign a text; whoever shows the signature may do what the text says, without a token. An
account's key opens the account, a container's key that container.

Source: Swift, "TempURL" and "FormPost"; digests as allowed by Swift 2.30.1.
"""

import base64
import binascii
import calendar
import contextlib
import dataclasses
import hashlib
import hmac
import time
from collections.abc import Iterable
from urllib.parse import quote

from storage_cluster.servers.http.messages import Authorize, Call, Refusal
from storage_cluster.servers.proxy.infos import Infos

DIGESTS = ("sha1", "sha256", "sha512")
_KEY_NAMES = ("Temp-Url-Key", "Temp-Url-Key-2")
_ISO_FORMAT = "%Y-%m-%dT%H:%M:%SZ"


@dataclasses.dataclass(frozen=True)
class Key:
    """A key, and its scope: (account,) or (account, container)."""

    text: str
    scope: tuple[str, ...]

    def hook(self) -> Authorize:
        """An authorization hook that allows everything within the key's scope, and nothing outside."""

        async def authorize(call: Call, _: str | None) -> None:
            if call.names[: len(self.scope)] != self.scope:
                raise Refusal(401, headers={"Www-Authenticate": f'Swift realm="{quote(call.names[0])}"'})

        return authorize


@dataclasses.dataclass(frozen=True)
class Signature:
    """A signature from a client."""

    digest: str
    value: bytes

    @classmethod
    def parse(cls, text: str) -> "Signature | None":
        """A signature in hex (its length determines the digest) or as `digest:base64`; None if it is none."""
        digest, colon, encoded = text.partition(":")
        try:
            if colon:
                filled = encoded.replace("-", "+").replace("_", "/")
                return cls(digest, base64.b64decode(filled + "=" * (-len(filled) % 4))) if digest in DIGESTS else None
            value = binascii.unhexlify(text)
        except ValueError:
            return None
        by_len = {hashlib.new(name).digest_size: name for name in DIGESTS}
        return cls(by_len[len(value)], value) if len(value) in by_len else None

    def signs(self, text: str, key: Key) -> bool:
        """Whether the signature was made from this text with this key."""
        made = hmac.digest(key.text.encode("utf-8", "surrogateescape"), text.encode("utf-8"), self.digest)
        return hmac.compare_digest(made, self.value)

    def key_of(self, texts: Iterable[str], keys: Iterable[Key]) -> Key | None:
        """The first key that signed one of these texts."""
        texts = tuple(texts)
        return next((key for key in keys if any(self.signs(text, key) for text in texts)), None)


async def keys_for(infos: Infos, call: Call, account: str, container: str) -> list[Key]:
    """The keys whose scope includes a container: two of the account, two of its own."""
    of_account = await infos.account(call, account)
    of_container = await infos.container(call, account, container)
    keys = [Key(of_account.meta("Account", name) or "", (account,)) for name in _KEY_NAMES]
    keys += [Key(of_container.meta("Container", name) or "", (account, container)) for name in _KEY_NAMES]
    return [key for key in keys if key.text]


def parse_expiry(text: str) -> int | None:
    """Seconds since 1970 from a number or an ISO 8601 date; None if it is neither."""
    with contextlib.suppress(ValueError):
        return int(text)
    with contextlib.suppress(ValueError):
        return calendar.timegm(time.strptime(text, _ISO_FORMAT))
    return None
