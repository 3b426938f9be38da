"""Which bucket and key a request names: in the path, or with the bucket in front of the host's name.

    GET /bucket/key        Host: 10.77.0.25:8085              path style
    GET /key               Host: bucket.s3.localhost:8085     virtual-host style

The bucket is in the host's name if that ends in one of the gateway's own names (`DOMAINS`).

Source: Amazon S3 user guide, "Virtual hosting of general purpose buckets".
"""

import dataclasses
import re

from storage_cluster.servers.s3.errors import S3Error

DOMAINS = ("s3.localhost", "s3.twintap", "gateway")
KEY_MAX_BYTES = 1024
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+")
_RESERVED_PREFIXES = ("xn--", "sthree-", "amzn-s3-demo-")
_RESERVED_SUFFIXES = ("-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3")


@dataclasses.dataclass(frozen=True)
class Address:
    """What a request is about: the service ("", ""), a bucket, or an object in it."""

    bucket: str
    key: str

    @property
    def resource(self) -> str:
        """As error documents name it."""
        return f"/{self.bucket}/{self.key}" if self.key else f"/{self.bucket}"


def address_of(host: str, path: str) -> Address:
    """The bucket and key of a request. `path`: decoded. Raises: S3Error for a key that is too long."""
    bucket, key = _bucket_in_host(host), path.removeprefix("/")
    if not bucket:
        bucket, _, key = key.partition("/")
    if len(key.encode("utf-8", "surrogateescape")) > KEY_MAX_BYTES:
        raise S3Error("KeyTooLongError", fields={"MaxSizeAllowed": KEY_MAX_BYTES})
    if "\0" in path or any("\udc80" <= character <= "\udcff" for character in key):
        raise S3Error("InvalidURI")
    return Address(bucket, key)


def check_bucket_name(name: str) -> None:
    """Raises: S3Error for a name that no bucket may have."""
    if (
        not _NAME.fullmatch(name)
        or _ADDRESS.fullmatch(name)
        or any(pair in name for pair in ("..", ".-", "-."))
        or name.startswith(_RESERVED_PREFIXES)
        or name.endswith(_RESERVED_SUFFIXES)
    ):
        raise S3Error("InvalidBucketName", fields={"BucketName": name})


def _bucket_in_host(host: str) -> str:
    name = host.rpartition(":")[0] if ":" in host.rpartition("]")[2] else host
    for domain in DOMAINS:
        if name.lower().endswith(f".{domain}"):
            return name[: -len(domain) - 1]
    return ""
