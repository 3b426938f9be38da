"""The lines that servers write: JSON for programs, Swift's own form for people."""

import dataclasses
import functools
import io
import json
import os
from pathlib import Path

import pytest
from multidict import CIMultiDict

from storage_cluster.servers.http.access_log import AccessLog, LineOf, Served, proxy_line, storage_line

SERVED = Served(
    transaction_id="tx6825923c45e246578019d-006b004cf4",
    method="GET",
    path="/v1/AUTH_test/bench/r46?format=json",
    status=200,
    start_ns=1_795_181_812_152_675_867,
    end_ns=1_795_181_812_161_335_707,
    bytes_in=0,
    bytes_out=1024,
    peer="10.77.0.10:40000",
    local="10.77.0.20:8080",
    headers=CIMultiDict({"x-auth-token": "AUTH_tk012360bf4deadbeef", "User-Agent": "swift client"}),
)


def test_the_proxys_line_is_swifts() -> None:
    assert proxy_line("proxy", SERVED) == (
        "proxy-server: 10.77.0.10 10.77.0.10 20/Nov/2026/13/36/52 GET /v1/AUTH_test/bench/r46%3Fformat%3Djson HTTP/1.1"
        " 200 - swift%20client AUTH_tk012360bf4... - 1024 - tx6825923c45e246578019d-006b004cf4 - 0.0087 - -"
        " 1795181812.152675867 1795181812.161335707 0"
    )


def test_a_storage_servers_line_is_swifts() -> None:
    headers = CIMultiDict({"User-Agent": "proxy-server 1849"})
    served = dataclasses.replace(SERVED, path="/d2/115/AUTH_test/bench/r49", headers=headers, bytes_out=0, status=404)
    assert storage_line("object", served) == (
        'object-server: 10.77.0.10 - - [20/Nov/2026:13:36:52 +0000] "GET /d2/115/AUTH_test/bench/r49" 404 - "-"'
        f' "tx6825923c45e246578019d-006b004cf4" "proxy-server 1849" 0.0087 "-" {os.getpid()} 0'
    )


def test_the_json_line_holds_no_token() -> None:
    stream, text = io.StringIO(), io.StringIO()
    AccessLog(stream, text, lambda served: served.method).write(SERVED)
    line = json.loads(stream.getvalue())
    assert line == {
        name: value for name, value in dataclasses.asdict(SERVED).items() if name not in ("headers", "source")
    }
    assert "AUTH_tk" not in stream.getvalue()
    assert text.getvalue() == "GET\n"


@pytest.mark.parametrize("line_of", [functools.partial(proxy_line, "proxy"), functools.partial(storage_line, "object")])
@pytest.mark.parametrize("path", ["/v1/\udce9", "/v1?\udce9=\udce9", "/v1/a?b=c"])
def test_bytes_that_are_no_utf8_are_percent_encoded(path: str, line_of: LineOf, tmp_path: Path) -> None:
    headers = CIMultiDict(dict.fromkeys(("Referer", "User-Agent", "X-Auth-Token", "Etag"), "\udce9"))
    with (
        (tmp_path / "json").open("w", encoding="utf-8") as stream,
        (tmp_path / "text").open("w", encoding="utf-8") as text,
    ):
        AccessLog(stream, text, line_of).write(dataclasses.replace(SERVED, path=path, headers=headers))
    assert json.loads((tmp_path / "json").read_bytes())["path"] == path.replace("\udce9", "%E9")
    assert b"%E9" in (tmp_path / "text").read_bytes()


@pytest.mark.parametrize(
    ("query", "secrets"),
    [
        (
            "X-Amz-Credential=test%3Atester%2F20261125&a=1&X-Amz-Signature=0af1&X-Amz-Security-Token=Fw0",
            ("test%3Atester", "0af1", "Fw0"),
        ),
        ("AWSAccessKeyId=test%3Atester&a=1&Signature=0af1%3D", ("test%3Atester", "0af1")),
        ("temp_url_sig=0af1&a=1", ("0af1",)),
    ],
)
def test_signatures_of_urls_reach_neither_log(query: str, secrets: tuple[str, ...]) -> None:
    stream, text = io.StringIO(), io.StringIO()
    served = dataclasses.replace(SERVED, path=f"/bucket/X-Amz-Signature=key?{query}")
    AccessLog(stream, text, lambda served: proxy_line("s3", served)).write(served)
    for line in (stream.getvalue(), text.getvalue()):
        assert not any(secret in line for secret in secrets)
    assert json.loads(stream.getvalue())["path"].startswith("/bucket/X-Amz-Signature=key?")
    assert "a=1" in stream.getvalue()
