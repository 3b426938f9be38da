"""TLS between an agent and its collector, over loopback: who is let in, and what others read."""

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import httpx
import pytest
import uvicorn

from collector.service.app import create_app
from collector.service.authority import AuthorityFiles, prepare_authority
from collector.service.door import Door, protocol_behind
from collector.service.handshakes import CROWDED, LATE, Handshakes
from collector.service.settings import CollectorSettings
from collector.service.tls_gate import HandshakeLimits, TlsGate, protocol_with_tls
from tests.helpers.polling import PATIENCE_S, wait_for
from tracer.agent import CaptureOptions
from tracer.collector_choice import LOOK_SECONDS, Collectors, Place, split_urls
from tracer.collector_connection import CollectorConnection
from tracer.errors import InputError
from tracer.reports import Reporting
from tracer.shipping import CollectorClient, CollectorDownError, CollectorRefusesError, Shipper
from tracer.spool import Spool, SpoolLimits
from tracer.tls import SYSTEM, TlsFiles, client_context, following_context, read_bundle, server_context

NOW = datetime.now(UTC)
NAMES = ("127.0.0.1", "localhost")
LONG = timedelta(days=4000)
TOKEN = "abc"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
LIMITS = HandshakeLimits()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> AuthorityFiles:
    """An authority with what a collector and its agents need."""
    return authority(tmp_path_factory.mktemp("ca"))


def authority(folder: Path, names: tuple[str, ...] = NAMES, now: datetime = NOW, url: str = "") -> AuthorityFiles:
    prepare_authority(folder, names, url, TOKEN, now)
    return AuthorityFiles(folder)


@dataclass
class Server:
    """A collector that listens."""

    port: int
    handshakes: Handshakes = field(default_factory=Handshakes)
    said: list[str] = field(default_factory=list)

    def note(self, line: str, *_: object) -> None:
        self.said.append(line)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def await_count(self, reason: str, count: int) -> None:
        """Until so many handshakes failed for that reason: the agent may know of it first."""
        wait_for(lambda: self.handshakes.counts()[reason] >= count, f"{reason}: {self.handshakes.counts()}")


@contextmanager
def collector(data: Path, files: TlsFiles | None, port: int = 0, limits: HandshakeLimits = LIMITS) -> Iterator[Server]:
    """A collector in a thread; without files it speaks plain HTTP."""
    listener = socket.create_server(("127.0.0.1", port))
    served = Server(listener.getsockname()[1])
    context = following_context(files, served.handshakes.note, served.note) if files else None
    app = create_app(CollectorSettings(data, TOKEN), handshakes=served.handshakes)
    protocol = protocol_behind(Door())
    if context is not None:
        protocol = protocol_with_tls(TlsGate(context, served.handshakes, limits), protocol)
    server = uvicorn.Server(uvicorn.Config(app, http=protocol, log_level="error", lifespan="off", loop="asyncio"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def check(url: str, tls: TlsFiles) -> str:
    """What an agent with these files reads of its collector; empty if it is let in."""
    with closing(CollectorClient(url, TOKEN, tls=tls)) as client:
        try:
            client.check()
        except (CollectorRefusesError, CollectorDownError) as error:
            return f"{type(error).__name__}: {error}"
    return ""


def mutual(made: AuthorityFiles) -> TlsFiles:
    return TlsFiles(made.ca, made.collector)


def test_an_agent_with_the_bundle_is_let_in(made: AuthorityFiles, tmp_path: Path) -> None:
    with collector(tmp_path, mutual(made)) as server:
        assert check(server.url, TlsFiles(bundle=made.agent)) == ""
        assert check(server.url, TlsFiles(ca=made.ca, cert=made.agent)) == ""
        assert check(f"https://localhost:{server.port}", TlsFiles(bundle=made.agent)) == ""
        assert sum(server.handshakes.counts().values()) == 0


def test_without_clients_certificates_the_authority_is_enough(made: AuthorityFiles, tmp_path: Path) -> None:
    with collector(tmp_path, TlsFiles(cert=made.collector)) as server:
        assert check(server.url, TlsFiles(ca=made.ca)) == ""


def test_each_refusal_is_one_line_with_a_remedy_and_counted(made: AuthorityFiles, tmp_path: Path) -> None:
    other = authority(tmp_path / "other")
    expired = authority(tmp_path / "expired", now=NOW - LONG)
    cases = (
        ("no_certificate", TlsFiles(ca=made.ca), "it lets in only agents with a certificate; give --bundle"),
        ("other_authority", TlsFiles(made.ca, other.agent), "of an authority that it does not trust; copy the coll"),
        ("other_authority", TlsFiles(made.ca, expired.agent), "of an authority that it does not trust"),
        ("wrong_purpose", TlsFiles(made.ca, made.collector), "this agent's certificate is not one of clients; give"),
        ("not_trusted", TlsFiles(bundle=other.agent), "its certificate is of an authority that is not trusted here"),
        ("not_trusted", TlsFiles(), "its certificate is of an authority that is not trusted here; give the authority"),
    )
    with collector(tmp_path / "data", mutual(made)) as server:
        for reason, tls, said in cases:
            before = server.handshakes.counts()[reason]
            found = check(server.url, tls)
            assert found.startswith(f"CollectorRefusesError: the collector at {server.url}: "), found
            assert said in found
            assert found.count("\n") == 0
            server.await_count(reason, before + 1)
        refused = {each.reason: each for each in server.handshakes.refusals()}
        assert refused.keys() == {reason for reason, _, _ in cases}
        assert {each.address for each in refused.values()} == {"127.0.0.1"}
        found = httpx.get(
            f"{server.url}/api/refusals", headers=BEARER, verify=client_context(TlsFiles(bundle=made.agent))
        )
        assert found.json()[0]["remedy"] == "give it --bundle agent.pem, or --ca ca.pem"
        assert sum(each["count"] for each in found.json()) >= len(cases)


def idle(stack: ExitStack, server: Server, count: int) -> list[socket.socket]:
    """Connections over which nothing is sent."""
    return [stack.enter_context(socket.create_connection(("127.0.0.1", server.port))) for _ in range(count)]


def is_closed(connection: socket.socket) -> bool:
    """Whether the other side closes it; fails if that never comes."""
    connection.settimeout(PATIENCE_S)
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_stranger_who_sends_nothing_does_not_hold_the_port(made: AuthorityFiles, tmp_path: Path) -> None:
    limits = HandshakeLimits(unfinished_count=8, unfinished_of_address_count=8)
    with collector(tmp_path, mutual(made), limits=limits) as server, ExitStack() as stack:
        held = idle(stack, server, 30)
        assert all(map(is_closed, held[:22])), "the oldest make room"
        assert check(server.url, TlsFiles(bundle=made.agent)) == ""
        server.await_count(CROWDED, 23)
        assert is_closed(held[22])
        assert server.handshakes.counts()[LATE] == 0
        (refusal,) = server.handshakes.refusals()
        assert (refusal.address, refusal.count) == ("127.0.0.1", 23)


def test_a_handshake_has_a_time(made: AuthorityFiles, tmp_path: Path) -> None:
    limits = HandshakeLimits(handshake_seconds=0.3)
    with collector(tmp_path, mutual(made), limits=limits) as server, ExitStack() as stack:
        silent, half = idle(stack, server, 2)
        half.sendall(bytes.fromhex("16030100"))
        assert is_closed(silent)
        assert is_closed(half)
        server.await_count(LATE, 2)
        idle(stack, server, 1)[0].close()
        server.await_count(LATE, 2)


def test_who_is_refused_and_stays_is_refused_once(made: AuthorityFiles, tmp_path: Path) -> None:
    """The other side keeps its connection open after the alert, until its time is over."""
    context = client_context(TlsFiles(ca=made.ca))
    with collector(tmp_path, mutual(made), limits=HandshakeLimits(handshake_seconds=0.3)) as server:
        with (
            socket.create_connection(("127.0.0.1", server.port)) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
        ):
            connection.settimeout(PATIENCE_S)
            with pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"):
                connection.recv(1)
            assert is_closed(connection)
        assert {reason: count for reason, count in server.handshakes.counts().items() if count} == {"no_certificate": 1}


def test_what_is_sent_with_the_end_of_the_handshake_is_read(made: AuthorityFiles, tmp_path: Path) -> None:
    """The request is on the way before the server's protocol behind TLS is there."""
    context = client_context(TlsFiles(bundle=made.agent))
    with collector(tmp_path, mutual(made)) as server:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
        with socket.create_connection(("127.0.0.1", server.port)) as plain:
            while True:
                try:
                    tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    plain.sendall(outgoing.read())
                    incoming.write(plain.recv(65536))
            tls.write(b"GET /api/health HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer abc\r\n\r\n")
            plain.sendall(outgoing.read())  # the end of the handshake and the request, at once
            answer = b""
            plain.settimeout(PATIENCE_S)
            while b"ok" not in answer:
                incoming.write(plain.recv(65536))
                try:
                    answer += tls.read(65536)
                except ssl.SSLWantReadError:
                    continue
        assert answer.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("names", "now", "said"),
    [
        (
            ("other.example",),
            NOW,
            "its certificate does not name 127.0.0.1; use a name that it has, or have it name this",
        ),
        (NAMES, NOW - LONG, "its certificate has expired by this host's clock, 20"),
        (NAMES, NOW + LONG, "its certificate is not valid yet by this host's clock, 20"),
    ],
)
def test_a_collector_with_another_name_or_time_is_refused(
    names: tuple[str, ...], now: datetime, said: str, tmp_path: Path
) -> None:
    made = authority(tmp_path / "ca", names, now)
    with collector(tmp_path / "data", TlsFiles(cert=made.collector)) as server:
        found = check(server.url, TlsFiles(ca=made.ca))
        server.await_count("not_trusted", 1)
    assert said in found


def test_an_agent_reports_its_attempts_that_tls_ended(made: AuthorityFiles, tmp_path: Path) -> None:
    """They are counted while it is refused, and in its reports once it gets through."""
    bundle = tmp_path / "agent.pem"
    bundle.write_bytes(authority(tmp_path / "other").agent.read_bytes())
    spool = Spool(tmp_path / "spool")
    with collector(tmp_path / "data", mutual(made)) as server:
        with closing(CollectorClient(server.url, TOKEN, tls=TlsFiles(bundle=bundle))) as client:
            shipper = Shipper(client, [spool], SpoolLimits(1 << 20), server.note)
            for _ in range(2):
                shipper.check()
            bundle.write_bytes(made.agent.read_bytes())
            shipper.check()
            assert client.tls_failures.last_ns > NOW.timestamp() * 1e9
            made_report = Reporting(CaptureOptions(("eth0",), "web1"), [], 1000).report(shipper.delivery())
        assert "is of an authority that is not trusted here; give the authority's" in made_report.tls_failure
        assert (made_report.tls_failures_count, made_report.tls_failed_ns) == (2, client.tls_failures.last_ns)


def test_an_expired_agent_is_named(tmp_path: Path) -> None:
    """The certificates of both are of one authority, whose agents' end with it."""
    made = authority(tmp_path / "ca", now=NOW - LONG)
    with collector(tmp_path / "data", TlsFiles(made.ca, authority(tmp_path / "now").collector)) as server:
        found = check(server.url, TlsFiles(AuthorityFiles(tmp_path / "now").ca, made.agent))
        server.await_count("expired", 1)
    assert "this agent's certificate has expired, or the clock of one of the two is wrong" in found


def test_http_to_a_port_of_tls_and_the_reverse(made: AuthorityFiles, tmp_path: Path) -> None:
    with collector(tmp_path / "a", mutual(made)) as server:
        found = check(server.url.replace("https", "http"), TlsFiles())
        assert f"it speaks TLS, and was sent plain HTTP; give https://127.0.0.1:{server.port}" in found
        server.await_count("plain_http", 1)
    with collector(tmp_path / "b", None) as server:
        found = check(server.url, TlsFiles(bundle=made.agent))
        assert (
            f"what answers there does not speak TLS; give http://127.0.0.1:{server.port}, or have it use TLS" in found
        )


def test_old_versions_of_tls_are_refused(made: AuthorityFiles, tmp_path: Path) -> None:
    old = client_context(TlsFiles(bundle=made.agent))
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning):
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    with (
        collector(tmp_path, mutual(made)) as server,
        socket.create_connection(("127.0.0.1", server.port)) as plain,
        pytest.raises(ssl.SSLError),
    ):
        old.wrap_socket(plain, server_hostname="127.0.0.1")


def test_certificates_that_are_replaced_are_used_without_a_restart(tmp_path: Path) -> None:
    first, second = authority(tmp_path / "first"), authority(tmp_path / "second")
    served = AuthorityFiles(tmp_path / "served")
    served.folder.mkdir()

    def use(made: AuthorityFiles) -> None:
        for name in ("ca.pem", "collector.pem", "agent.pem"):
            (served.folder / f"{name}.new").write_bytes((made.folder / name).read_bytes())
            (served.folder / f"{name}.new").replace(served.folder / name)

    use(first)
    with collector(tmp_path / "data", mutual(served)) as server:
        with closing(CollectorClient(server.url, TOKEN, tls=TlsFiles(bundle=served.agent))) as client:
            client.check()
            use(second)
            assert check(server.url, TlsFiles(bundle=first.agent)).startswith("CollectorRefusesError")
            assert check(server.url, TlsFiles(bundle=second.agent)) == ""
            client._answered_at = None  # its connection has ended
            client.check()
        served.collector.write_text("half of a certi")
        assert check(server.url, TlsFiles(bundle=second.agent)) == ""
    assert server.said[0] == "the certificates were replaced; new connections use them"
    assert server.said[-1].startswith("the certificates that were used so far stay in use: ")


def test_an_agent_follows_its_collector_to_another_address(made: AuthorityFiles, tmp_path: Path) -> None:
    file = tmp_path / "collector"
    with collector(tmp_path / "a", mutual(made)) as one, collector(tmp_path / "b", mutual(made)) as two:
        file.write_text(one.url)
        asked: list[str] = []

        def open_client(place: Place) -> CollectorClient:
            asked.append(place.url)
            return CollectorClient(place.url, TOKEN, tls=TlsFiles(bundle=made.agent))

        now = [0.0]
        collectors = Collectors(
            [one.url], "a", open_client, one.note, urls_now=lambda: split_urls(file.read_text()), clock=lambda: now[0]
        )
        with closing(collectors):
            collectors.check()
            for text in (two.url, "http:/"):  # what is no address is not followed
                file.write_text(text)
                now[0] += LOOK_SECONDS
                collectors.check()
                assert asked == [one.url, two.url]


def test_a_bundle_that_names_http_is_never_sent_https_unchecked(made: AuthorityFiles, tmp_path: Path) -> None:
    """An agent that moves from HTTP to HTTPS with files that cannot be used stays where it was."""
    with collector(tmp_path, TlsFiles(cert=made.collector)) as server:
        tls, before, now = TlsFiles(ca=tmp_path / "none"), f"http://127.0.0.1:{server.port}", [0.0]
        collectors = Collectors(
            [before],
            "a",
            lambda place: CollectorClient(place.url, TOKEN, tls=tls),
            server.note,
            urls_now=lambda: [server.url],
            clock=lambda: now[0],
        )
        now[0] += LOOK_SECONDS
        with closing(collectors), pytest.raises(CollectorRefusesError, match="was sent plain HTTP"):
            collectors.check()


@pytest.mark.parametrize(
    ("cert", "said"),
    [
        ("nothing", "No such file"),
        ("ca.pem", "holds no certificate with its private key"),
        ("empty", "holds no certificate with its private key"),
    ],
)
def test_files_that_cannot_be_used_are_one_line(made: AuthorityFiles, cert: str, said: str) -> None:
    (made.folder / "empty").touch()
    with pytest.raises(InputError, match=said):
        server_context(TlsFiles(cert=made.folder / cert))
    with pytest.raises(InputError, match="holds no certificate of an authority"):
        client_context(TlsFiles(ca=made.folder / "empty"))
    with pytest.raises(InputError, match="does not fit"):
        server_context(TlsFiles(cert=made.collector, key=made.agent))


def test_what_others_can_read_is_named(made: AuthorityFiles, tmp_path: Path) -> None:
    file = tmp_path / "agent.pem"
    file.write_bytes(made.agent.read_bytes())
    file.chmod(0o640)
    assert TlsFiles(bundle=file).open_secrets() == [file]
    file.chmod(0o600)
    assert TlsFiles(bundle=file).open_secrets() == []
    assert read_bundle(file).token == TOKEN


def test_nothing_is_probed_for_long(made: AuthorityFiles) -> None:
    """A server that takes connections and says nothing is waited for as before; no name of TLS is given to that."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = CollectorClient(f"https://127.0.0.1:{silent.getsockname()[1]}", tls=TlsFiles(bundle=made.agent))
        client.limit_waiting(0.1)
        began = time.monotonic()
        with closing(client), pytest.raises(CollectorDownError, match="does not answer"):
            client.check()
        assert time.monotonic() - began < 30


def test_an_address_of_a_name_is_asked_by_the_name(made: AuthorityFiles, tmp_path: Path) -> None:
    """No resolver knows the name; whether the certificate names it is judged all the same."""

    def said_by(url: str, address: str, tls: TlsFiles) -> str:
        connect = partial(CollectorConnection, address=address)
        with closing(CollectorClient(url, TOKEN, connect, tls=tls, name=f"{url} ({address})")) as client:
            try:
                client.check()
            except (CollectorDownError, CollectorRefusesError) as error:
                return str(error)
        return ""

    with collector(tmp_path / "plain", None) as server:
        assert said_by(f"http://collectors.invalid:{server.port}", "127.0.0.1", SYSTEM) == ""
        refused = said_by(f"http://collectors.invalid:{server.port}", "127.0.0.2", SYSTEM)
    assert "(127.0.0.2) does not answer" in refused
    with collector(tmp_path / "tls", mutual(made)) as server:
        bundle = TlsFiles(bundle=made.agent)
        assert said_by(f"https://127.0.0.1:{server.port}", "127.0.0.1", bundle) == ""
        other = said_by(f"https://collectors.invalid:{server.port}", "127.0.0.1", bundle)
        assert "its certificate does not name collectors.invalid" in other
