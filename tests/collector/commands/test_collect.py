"""`tracer collect` as it is started: where it listens, who may send, and what it prints when it cannot."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest

from collector.commands.collect import is_loopback, open_listener, parse_listen
from tests.helpers.command_line import run_here
from tracer.errors import InputError, ResourceError
from tracer.shipping import CollectorClient, CollectorRefusesError
from tracer.tokens import left_token_for

COLLECT = (sys.executable, "-P", "-m", "tracer", "collect")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:8710", ("127.0.0.1", 8710)),
        ("[::1]:0", ("::1", 0)),
        ("localhost:80", ("localhost", 80)),
        ("0.0.0.0:65535", ("0.0.0.0", 65535)),
    ],
)
def test_addresses_to_listen_at(text: str, expected: tuple[str, int]) -> None:
    assert parse_listen(text) == expected


@pytest.mark.parametrize(
    "text", ["", "8710", ":8710", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", "h:-1"]
)
def test_what_is_no_address_is_reported(text: str) -> None:
    with pytest.raises(InputError, match="is no address to listen at"):
        parse_listen(text)


@pytest.mark.parametrize(
    ("address", "expected"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False),
     ("10.0.0.1", False), ("example.org", False)],
)  # fmt: skip
def test_only_loopback_is_open_to_all(address: str, expected: bool) -> None:
    assert is_loopback(address) is expected


def test_a_port_in_use_is_reported() -> None:
    with open_listener("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ResourceError, match=f"cannot listen at 127.0.0.1:{port}: Address already in use"):
            open_listener("127.0.0.1", port)


def test_another_machines_address_is_reported() -> None:
    with pytest.raises(ResourceError, match="Cannot assign requested address"):
        open_listener("192.0.2.1", 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--listen", "0.0.0.0:0"), "tracer: 0.0.0.0:0 can be reached from other machines, and without TLS"),
        (("--listen", "0.0.0.0:0", "--plain-http"), "tracer: 0.0.0.0:0 can be reached from other machines; give --to"),
        (("--listen", "0.0.0.0:0", "--cert", "c"), "tracer: 0.0.0.0:0 can be reached from other machines, and no cli"),
        (("--make-ca", "ca", "--cert", "c"), "tracer: --make-ca has its own certificates; give --make-ca alone"),
        (("--make-ca", "ca", "--plain-http"), "tracer: --plain-http is without TLS; leave it out"),
        (("--ca", "c"), "tracer: --key, --ca and --no-client-cert are for TLS; give --make-ca DIR, or --cert FILE"),
        (("--tls-name", "c"), "tracer: --tls-name is for certificates that are made here; give --make-ca DIR"),
        (("--make-ca", "ca", "--tls-name", "schön"), "tracer: 'schön' is no name for a certificate; give a DNS name"),
        (("--token", "abc"), "tracer: a token on the command line is no secret"),
        (("--listen", "nowhere"), "tracer: 'nowhere' is no address to listen at"),
    ],
)
def test_what_cannot_start_is_one_line_and_status_2(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    done = run_here("collect", "--data", tmp_path / "d", *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(message)
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "d").exists()


@contextmanager
def collector(data: Path, *options: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """(URL, process) of a collector that listens."""
    argv = [*COLLECT, "--data", str(data), "--listen", "127.0.0.1:0", *options]
    process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        yield process.stderr.readline().partition("collecting at ")[2].split()[0], process
    finally:
        process.kill()
        process.communicate()


def test_it_answers_and_stops_in_order(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc\n")
    with collector(tmp_path / "data", "--token-file", str(tmp_path / "token")) as (url, process):
        assert httpx.get(f"{url}/api/health").status_code == 401
        assert httpx.get(f"{url}/api/health", headers={"Authorization": "Bearer abc"}).json() == {"status": "ok"}
        assert "openapi.json" in httpx.get(f"{url}/docs").text
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as cut:  # an agent that goes away in the middle of a segment
            cut.sendall(
                b"PUT /api/sessions/s/hosts/h/incarnations/20261125T225248-0a1b2c/segments/1 HTTP/1.1\r\n"
                b"Host: h\r\nContent-Length: 99\r\n"
                b"Authorization: Bearer abc\r\nX-Content-SHA256: " + b"0" * 64 + b"\r\n\r\n\n\r\r\n"
            )
        assert httpx.get(f"{url}/api/sessions", headers={"Authorization": "Bearer abc"}).is_success
        process.terminate()
        _, said = process.communicate(timeout=30)
    assert process.returncode in (0, -15)
    assert "Traceback" not in said
    assert not list(tmp_path.rglob("*.incoming"))


def test_a_second_collector_keeps_out_of_a_folder_until_the_first_is_gone(tmp_path: Path) -> None:
    half = tmp_path / "data" / "sessions" / "s" / ".live.0123abcd.partial"
    with collector(tmp_path / "data", "--no-token") as (_, first):
        half.mkdir(parents=True)
        argv = [*COLLECT, "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0", "--no-token"]
        second = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        assert (second.returncode, second.stderr.count("\n")) == (2, 1)
        assert f"another collector uses {tmp_path / 'data'}" in second.stderr
        assert half.exists(), "it may be the first one's"
        first.kill()
        first.wait()
        third = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
        assert third.stderr is not None
        assert third.stderr.readline().endswith(f"Z INFO collector: removed {half}, left by a run that was killed\n")
        third.terminate()
        third.communicate(timeout=60)
    assert not half.exists()


def test_without_a_token_it_makes_one_up_that_agents_find(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("TWINTAP_TOKEN", raising=False)
    with collector(tmp_path / "data") as (url, process):
        assert process.stderr is not None
        said = process.stderr.readline()
        assert "its token is in" in said
        assert httpx.get(f"{url}/api/health").status_code == 401
        token = left_token_for(url)
        assert len(token) > 20
        assert token not in said
        assert httpx.get(f"{url}/api/health", headers={"Authorization": f"Bearer {token}"}).is_success
        with closing(CollectorClient(url, token_now=lambda: left_token_for(url))) as client:
            client.check()
        with closing(CollectorClient(url)) as client, pytest.raises(CollectorRefusesError, match="--token-file"):
            client.check()
        assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700
        process.terminate()
        process.communicate(timeout=30)
    assert left_token_for(url) == ""


def test_no_token_is_said_aloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TWINTAP_TOKEN", raising=False)
    with collector(tmp_path / "data", "--no-token") as (url, _):
        assert httpx.get(f"{url}/api/health").is_success
        assert httpx.get(f"{url}/api/health", headers={"Host": "evil.example"}).status_code == 403
