"""The page by TLS: whole answers, large ones as well, to whom is let in."""

import socket
import ssl
import threading
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from collector.commands.collect import command as collect
from collector.service.authority import AuthorityFiles, prepare_authority
from tests.helpers.viewer_server import stop
from tracer.errors import InputError
from tracer.tls import TlsFiles, client_context, following_context
from viewer.commands import command
from viewer.serving import make_server
from viewer.tls_front import tls_front

LARGE = b"0123456789abcdef" * 500_000


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> AuthorityFiles:
    folder = tmp_path_factory.mktemp("ca")
    prepare_authority(folder, ("127.0.0.1",), "https://127.0.0.1:1", "abc", datetime.now(UTC))
    return AuthorityFiles(folder)


def application(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
    start("200 OK", [("Content-Type", "text/plain")])
    return [environ["wsgi.input"].read() or LARGE]


@contextmanager
def page(files: TlsFiles) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"https://127.0.0.1:{listener.getsockname()[1]}/"
        with tls_front(listener, following_context(files, lambda *_: None, print)) as behind:
            server = make_server(application, behind)
            thread = threading.Thread(target=server.run, daemon=True)
            thread.start()
            try:
                yield url
            finally:
                stop(server)
                thread.join()
                server.task_dispatcher.shutdown()


def content(url: str, tls: TlsFiles, body: bytes | None = None) -> bytes:
    with urllib.request.urlopen(url, body, timeout=60, context=client_context(tls)) as answer:
        found: bytes = answer.read()
        return found


def test_answers_and_uploads_are_whole(made: AuthorityFiles) -> None:
    with page(TlsFiles(cert=made.collector)) as url:
        assert content(url, TlsFiles(ca=made.ca)) == LARGE
        assert content(url, TlsFiles(ca=made.ca), b"x" * 300_000) == b"x" * 300_000


def test_with_an_authority_only_its_certificates_are_let_in(made: AuthorityFiles) -> None:
    with page(TlsFiles(made.ca, made.collector)) as url:
        assert content(url, TlsFiles(bundle=made.agent)) == LARGE
        with pytest.raises((OSError, ssl.SSLError), match="certificate required"):
            content(url, TlsFiles(ca=made.ca))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--listen", "0.0.0.0:0", "--token"), "and the page could be read on the way"),
        (("--listen", "0.0.0.0:0"), "can be reached from other machines"),
        (("--ca", "x"), "--key and --ca are for TLS"),
        (("--cert", "/nowhere"), "/nowhere cannot be read"),
        (("--cert", "x", "--plain-http"), "--plain-http is without TLS"),
    ],
)
def test_refusals(arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    raised = CliRunner().invoke(command, [*arguments, "--no-browser"]).exception
    assert isinstance(raised, InputError)
    assert message in str(raised)


@pytest.mark.parametrize(
    "start", [(command, ("--no-browser",)), (collect, ("--data", "data"))], ids=["view", "collect"]
)
def test_who_may_read_a_file_is_said_only_of_keys(
    start: tuple[click.Command, tuple[str, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a wrong --cert would have a file of the system closed to others."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "hosts"
    file.write_text("127.0.0.1 localhost\n")
    file.chmod(0o644)
    result = CliRunner().invoke(start[0], [*start[1], "--listen", "127.0.0.1:0", "--cert", str(file)])
    assert isinstance(result.exception, InputError)
    assert "chmod" not in result.output
