"""What can be said of an S3 store, by the names of a file's `[storage]`, and what COSBench calls the same.

| option | what |
|---|---|
| `endpoint` | URL of the store, `http://HOST:PORT` |
| `access_key`, `secret_key`, `session_token` | without a key: those of the environment, as AWS's SDKs name them |
| `region` | of the signatures (default: the environment's; else us-east-1) |
| `path_style` | `true` (default): the bucket is in the path; `false`: in the host name, where it can be |
| `domain` | what buckets' host names end in, where that is not the endpoint's host: `BUCKET.DOMAIN:PORT` |
| `payload` | `unsigned` (default), `signed` (SHA-256), `chunked` (signed chunks), `trailer` (unsigned, with a CRC-32) |
| `part_size_bytes` | objects above go up in parts and come down in ranges of so many bytes; 0 (default): whole |
| `parallel_parts` | of one object at once (default 4) |
| `access_id` | a reservation, in `X-Papio-Access-ID` of requests that read, write or begin an upload |
| `timeout` | ms, for connecting and for reading |
"""

import dataclasses
import enum
import os
from typing import NoReturn
from urllib.parse import urlsplit

from storage_cluster.bench.errors import WorkloadError
from storage_cluster.bench.model import StorageConfig
from storage_cluster.s3.signatures import Credentials

DEFAULT_REGION = "us-east-1"
NAMES = (
    "endpoint", "access_key", "secret_key", "session_token", "region", "path_style", "domain", "payload",
    "part_size_bytes", "parallel_parts", "access_id", "timeout",
)  # fmt: skip
SECRETS = ("access_key", "secret_key", "session_token")
COSBENCH_NAMES = {
    "accesskey": "access_key",
    "secretkey": "secret_key",
    "endpoint": "endpoint",
    "path_style_access": "path_style",
    "timeout": "timeout",
    "aws_region": "region",
    "region": "region",
}
"""COSBench's keys, and ours. Source: COSBench 0.4.2, S3Constants; aws_region: its forks."""
COSBENCH_IDLE = ("max_connections", "no_verify_ssl", "proxyport", "storage_class")
"""Keys of COSBench and its forks that have no effect here: workers have their own connections, and there is no TLS."""
COSBENCH_REFUSED = ("proxyhost",)
"""Keys that may only be empty."""
OWN_NAMES = ("domain", "payload", "part_size_bytes", "parallel_parts", "access_id")
"""Keys that COSBench does not have."""
COSBENCH_KEYS = (*COSBENCH_NAMES, *COSBENCH_IDLE, *COSBENCH_REFUSED, *OWN_NAMES)
"""All that may stand in a COSBench file, ours included."""
PARALLEL_PARTS = 4
PARALLEL_PARTS_MAX = 64
_MEND = "see the options of a file's [storage] in docs/bench.md"


class Payload(enum.StrEnum):
    """How the payload of an upload is secured."""

    UNSIGNED = "unsigned"
    SIGNED = "signed"
    CHUNKED = "chunked"
    TRAILER = "trailer"


@dataclasses.dataclass(frozen=True)
class S3Options:
    """An S3 store, and how to use it."""

    endpoint: str
    credentials: Credentials
    region: str = DEFAULT_REGION
    path_style: bool = True
    domain: str = ""  # "": the endpoint's host
    payload: Payload = Payload.UNSIGNED
    part_size_bytes: int = 0
    parallel_parts: int = PARALLEL_PARTS
    access_id: str = ""


def read_options(config: StorageConfig) -> S3Options:
    """The options of a store, the environment's where the file has none. Raises: WorkloadError."""
    endpoint = config.option("endpoint")
    if not endpoint:
        _refuse(config, "endpoint", "is missing")
    if urlsplit(endpoint).scheme != "http" or not urlsplit(endpoint).hostname:
        _refuse(
            config, "endpoint", f"is {endpoint!r}, no http:// URL (TLS is not supported: give the address behind it)"
        )
    for name in filter(config.option, COSBENCH_REFUSED):
        _refuse(config, name, "is not supported")
    _count(config, "timeout", 1, 1, 86_400_000)
    return S3Options(
        endpoint,
        _credentials(config),
        config.option("region") or _of_environment("AWS_REGION", "AWS_DEFAULT_REGION") or DEFAULT_REGION,
        _boolean(config, "path_style", True),
        config.option("domain"),
        _payload(config),
        _count(config, "part_size_bytes", 0, 0, 5 << 30),
        _count(config, "parallel_parts", PARALLEL_PARTS, 1, PARALLEL_PARTS_MAX),
        _access_id(config),
    )


def _credentials(config: StorageConfig) -> Credentials:
    if config.option("access_key"):
        if not config.option("secret_key"):
            _refuse(config, "secret_key", "is missing")
        return Credentials(config.option("access_key"), config.option("secret_key"), config.option("session_token"))
    access_key, secret_key = _of_environment("AWS_ACCESS_KEY_ID"), _of_environment("AWS_SECRET_ACCESS_KEY")
    if not access_key or not secret_key:
        _refuse(
            config,
            "access_key",
            "is missing, and so are AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment",
        )
    return Credentials(access_key, secret_key, _of_environment("AWS_SESSION_TOKEN"))


def _of_environment(*names: str) -> str:
    return next((os.environ[name] for name in names if os.environ.get(name)), "")


def _boolean(config: StorageConfig, name: str, default: bool) -> bool:
    text = config.option(name).lower()
    if text not in ("", "true", "false"):
        _refuse(config, name, f"is {text!r}, neither true nor false")
    return text == "true" if text else default


def _payload(config: StorageConfig) -> Payload:
    text = config.option("payload", Payload.UNSIGNED)
    if text not in tuple(Payload):
        _refuse(config, "payload", f"is {text!r}, none of {', '.join(Payload)}")
    return Payload(text)


def _access_id(config: StorageConfig) -> str:
    text = config.option("access_id")
    if text and not (text.isascii() and text.isalnum()):
        _refuse(config, "access_id", f"is {text!r}, no id of a reservation")
    return text


def _count(config: StorageConfig, name: str, default: int, least: int, most: int) -> int:
    text = config.option(name) or str(default)
    if not text.isdecimal() or not least <= int(text) <= most:
        _refuse(config, name, f"is {text!r}, no whole number from {least:,} to {most:,}")
    return int(text)


def _refuse(config: StorageConfig, name: str, problem: str) -> NoReturn:
    """Raises: WorkloadError. No `NAME: VALUE` in it: after the name of a key that would be overwritten as a secret."""
    raise WorkloadError(f"{config.where}the option {name} of storage s3 {problem}", _MEND)
