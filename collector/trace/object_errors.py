"""Turns what a store of objects answers, or does not, into errors that an operator can mend.

The libraries below (fsspec, botocore, aiohttp) have their own trees of exceptions. They are recognised by class and by
S3's error code; nothing is loaded to do so, since only a library that is loaded can have raised.
Credentials are in none of these messages: they name the URL and, where it is known, the endpoint.
"""

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tracer.errors import InputError, ResourceError, TracerError

LOGIN = "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE (docs/object-storage.md)"
ENDPOINT = "check AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, and whether the store is up"
OTHER_LOGIN, OTHER_ENDPOINT = "ask who runs the server for access", "check the URL, and whether the server is up"
AGAIN = "run the command again"
_NO_LOGIN = {
    *("NoCredentialsError", "PartialCredentialsError", "ProfileNotFound", "CredentialRetrievalError"),
    *("SSOError", "UnauthorizedSSOTokenError", "TokenRetrievalError", "NoAuthTokenError"),
}
_NOT_REACHED = {
    *("EndpointConnectionError", "ConnectTimeoutError", "ProxyConnectionError", "SSLError"),
    *("ClientConnectorError", "ClientConnectorDNSError", "ClientConnectorCertificateError", "ClientConnectorSSLError"),
    *("ConnectionRefusedError", "gaierror", "ConnectionTimeoutError"),
}
_BROKEN = {
    *("ConnectionClosedError", "ReadTimeoutError", "ResponseStreamingError", "IncompleteReadError", "HTTPClientError"),
    *("ClientPayloadError", "ServerDisconnectedError", "ClientOSError", "ConnectionResetError", "BrokenPipeError"),
    *("TimeoutError", "FSTimeoutError", "SocketTimeoutError", "AioReadTimeoutError", "ServerTimeoutError"),
}
_LIBRARIES = (
    ("botocore.exceptions", "BotoCoreError"),
    ("botocore.exceptions", "ClientError"),
    ("aiohttp", "ClientError"),
)


def library_errors() -> tuple[type[BaseException], ...]:
    """What reading or writing an object may raise, of the libraries that are loaded."""
    loaded = [(sys.modules.get(module), name) for module, name in _LIBRARIES]
    return (OSError, *(getattr(module, name) for module, name in loaded if module is not None))


@contextmanager
def object_errors(url: str, doing: str = "read the trace") -> Iterator[None]:
    """Raise `ResourceError`, or `InputError` for what the user named wrongly, in place of a library's error.

    `FileNotFoundError` passes, unless the bucket is missing: the caller knows what else may be.
    """
    try:
        yield
    except library_errors() as error:
        if isinstance(error, FileNotFoundError) and code_of(error) != "NoSuchBucket":
            raise
        raise _to_tracer_error(error, url, doing) from None


def code_of(error: BaseException) -> str:
    """The code in S3's answer, "" if there was none."""
    for each in (error, error.__cause__):
        answer = getattr(each, "response", None)
        if isinstance(answer, dict):
            return str(answer.get("Error", {}).get("Code", ""))
    return ""


def _to_tracer_error(error: BaseException, url: str, doing: str) -> TracerError:
    code, names = code_of(error), {each.__name__ for each in type(error).__mro__}
    what = f"{url}: cannot {doing}"
    login, endpoint = (LOGIN, ENDPOINT) if url.startswith(("s3://", "s3a://")) else (OTHER_LOGIN, OTHER_ENDPOINT)
    if code == "NoSuchBucket":
        return InputError(f"{url}: no such bucket", "make it first, or correct the URL")
    if getattr(error, "errno", None) == errno.ENOSPC:
        return ResourceError(
            f"{what} (no space left on this machine)", "free some space, or set TMPDIR to a larger disk"
        )
    if names & _NO_LOGIN:
        return InputError(f"{what} (no credentials are set)", login)
    if isinstance(error, PermissionError) or getattr(error, "status", 0) in (401, 403):
        return InputError(f"{what} (the store denies it{f': {code}' if code else ''})", login)
    if "ParamValidationError" in names or code == "InvalidBucketName":
        return InputError(f"{url}: this is no name of a bucket", "correct the URL: s3://BUCKET/TRACE")
    if names & _NOT_REACHED:
        return ResourceError(f"{what} ({_place(error)}cannot be reached)", endpoint)
    if code in ("SlowDown", "503", "ServiceUnavailable") or getattr(error, "errno", None) == errno.EBUSY:
        return ResourceError(f"{what} (the store is too busy, also when asked again)", "try again later")
    if names & _BROKEN:
        return ResourceError(f"{what} (the connection broke, also when tried again)", AGAIN)
    return ResourceError(f"{what} ({_reason(error)})", endpoint)


def _place(error: BaseException) -> str:
    known: Any = getattr(error, "kwargs", {})
    url = str(known.get("endpoint_url") or "") if isinstance(known, dict) else ""
    scheme, separator, rest = url.partition("://")
    return f"{scheme}://{rest.partition('/')[0]} " if separator else "the store "


def _reason(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
