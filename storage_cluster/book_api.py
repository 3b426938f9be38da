"""The book of reservations as its users call it: one signed request, one JSON answer."""

import hashlib
import http.client
import json
import time
from typing import Any
from urllib.parse import urlsplit

from storage_cluster.errors import ClusterError, NotRunningError
from storage_cluster.s3.signatures import Credentials, SignableRequest, signed_headers

TIMEOUT_S = 10.0
_REGION = "us-east-1"


class BookError(ClusterError):
    """The book refuses what it was asked."""


def ask(url: str, credentials: Credentials, method: str, path: str, fields: dict[str, Any] | None = None) -> Any:
    """The book's answer; None if it has no body. Raises: BookError, NotRunningError if there is no answer."""
    host = urlsplit(url).netloc
    body = b"" if fields is None else json.dumps(fields).encode()
    time_ = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    signable = SignableRequest(method, path, "", [("host", host)])
    headers = signed_headers(signable, credentials, _REGION, time_, hashlib.sha256(body).hexdigest())
    connection = http.client.HTTPConnection(host, timeout=TIMEOUT_S)
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        answer = json.loads(response.read() or b"null")
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NotRunningError(
            f"the book of reservations at {host} does not answer ({error})", "see: tracer cluster status"
        ) from None
    finally:
        connection.close()
    if response.status >= 400:
        said = answer.get("error") if isinstance(answer, dict) else None
        raise BookError(
            f"the book refuses: {said or response.status}", "see what is reserved: tracer cluster reserve list"
        )
    return answer
