"""What servers are called, and which of them are one service."""

import struct
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from collector.commands import replay
from collector.services.choices import Watched
from collector.services.naming import name_services, servers_to_watch
from collector.services.servers import OUTSIDE, Server, ServerOwner, _in_origin_form
from collector.services.service_names import ServiceNames
from collector.services.services import clues
from collector.trace.model import ServiceInfo
from collector.trace.reading import Trace
from testkit.capture_files import pcap
from tracer.errors import InputError

PLACE = {name: place for place, name in enumerate(clues())}


def server(
    place: str, callers: str = "client", targets: Sequence[str] = (), seen: str = "", requests: int = 20
) -> Server:
    """A server at HOST:PORT with this many requests and answers, of which each of the clues `seen` was in half."""
    host, _, port = place.rpartition(":")
    half = {PLACE[name]: max(requests // 2, 1) for name in seen.split()}
    sample = [f"GET {target}" for target in targets]
    counts = requests if targets else 0
    asking = Counter({OUTSIDE if caller == "outside" else caller: 5 for caller in callers.split()})
    return Server(
        host, int(port), asking, counts=Counter(half), requests_count=counts, answers_count=counts, sample=sample
    )


def all_are_replicas(*_: str) -> bool:
    """All that may be replicas are shown to be."""
    return True


def names(*servers: Server, **by_operator: str) -> list[str]:
    given = {place.replace("_", ":"): name for place, name in by_operator.items()}
    found = ServiceNames(name_services(servers, given, all_are_replicas))
    return [found.of(each.host, each.port) for each in servers]


ITEMS = [f"/shop/items/{number}" for number in range(20)]


def test_a_port_alone_names_nothing() -> None:
    assert names(server("a:8080"), server("b:5000"), server("c:9000"), server("fd00::1:5432")) == [
        "a:8080",
        "b:5000",
        "c:9000",
        "[fd00::1]:5432",
    ]


def test_microservices_on_one_port_are_services_of_their_own() -> None:
    """Asked by one gateway, each for its own targets, and for what any server is asked for."""
    asked = [[f"/{word}/{number}" for number in range(10)] + ["/healthz"] * 10 for word in ("cart", "user", "pay")]
    assert names(*(server(f"s{n}:9000", "gateway", targets) for n, targets in enumerate(asked))) == [
        "s0:9000",
        "s1:9000",
        "s2:9000",
    ]


def test_below_one_common_prefix_targets_still_differ() -> None:
    asked = [[f"/api/v1/{word}/{number}" for number in range(20)] for word in ("cart", "user")]
    assert names(*(server(f"s{n}:9000", "gateway", targets) for n, targets in enumerate(asked))) == [
        "s0:9000",
        "s1:9000",
    ]


def asked_for(each: Server, *of: str) -> Server:
    """A server that clients of TLS ask for by these names."""
    each.asked_names.update(of)
    return each


def test_a_name_that_all_clients_of_tls_ask_for_names_what_nothing_else_names() -> None:
    servers = [
        asked_for(server("a:443"), "api.example"),
        asked_for(server("b:444"), "shop.example", "pay.example"),
        asked_for(server("c:445"), "localhost"),
        asked_for(server("d:6379", seen="redis-command"), "cache.example"),
        asked_for(server("balancer:8443"), "www.example"),
        asked_for(server("behind:9443"), "www.example"),
    ]
    given = ["api.example", "b:444", "c:445", "redis", "balancer:8443", "behind:9443"]
    assert names(*servers) == given
    evidence = {each.host: each.evidence for each in name_services(servers, {}, all_are_replicas)}
    assert "clients of TLS ask for api.example" in evidence["a"]
    assert "clients of TLS ask for pay.example, shop.example" in evidence["b"]
    replicas = [asked_for(server(f"r{n}:443", "web", ITEMS[n:]), "api.example") for n in range(2)]
    assert names(*replicas) == ["api.example"] * 2


def test_replicas_are_one_service() -> None:
    replicas = [server(f"app{n}:8000", "web", ITEMS[n:]) for n in range(3)]
    assert names(*replicas) == ["port 8000"] * 3
    evidence = name_services(replicas, {}, all_are_replicas)[0].evidence
    assert evidence == "3 hosts do the same: requests go now to one, now to another, whatever they are for"


def test_servers_alike_that_are_not_shown_to_be_replicas_are_services_of_their_own() -> None:
    replicas = [server(f"app{n}:8000", "web", ITEMS) for n in range(4)]
    pairs = [{"app0:8000", "app2:8000"}, {"app2:8000", "app3:8000"}]
    found = ServiceNames(name_services(replicas, {}, lambda one, other: {one, other} in pairs))
    assert [found.of(each.host, each.port) for each in replicas] == ["port 8000", "app1:8000", "port 8000", "port 8000"]
    assert servers_to_watch(replicas, {}) == Watched(frozenset(f"app{n}:8000" for n in range(4)), frozenset(["web"]))


def test_two_stores_of_the_same_software_are_two_services() -> None:
    nodes = [server(f"n{n}:9000", f"app n{1 - n}", ITEMS, "minio-answers") for n in range(2)]
    others = [server(f"m{n}:9000", "batch", ITEMS, "minio-answers") for n in range(2)]
    assert names(*nodes, *others) == ["minio n0:9000+1"] * 2 + ["minio m0:9000+1"] * 2


def test_hosts_of_one_store_show_it_by_any_of_its_services() -> None:
    """Each account server is asked by its own host's container server alone."""
    containers = [server(f"s{n}:6201", "proxy", ["/d1/4/AUTH_t/c"], "container-read") for n in range(2)]
    accounts = [server(f"s{n}:6202", f"s{n}", ["/d1/4/AUTH_t/c"], "account-target") for n in range(2)]
    assert names(*containers, *accounts) == ["swift-container"] * 2 + ["swift-account"] * 2


def test_two_groups_of_replicas_on_one_port_have_different_names() -> None:
    groups = [server(f"a{n}:80", "web", ITEMS) for n in range(2)] + [
        server(f"b{n}:80", "batch", ITEMS) for n in range(2)
    ]
    assert names(*groups) == ["a0:80+1", "a0:80+1", "b0:80+1", "b0:80+1"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (server("a:80", "x", ITEMS), server("b:80", "y", ITEMS)),  # others ask
        (server("a:80", "x", ITEMS), server("a:81", "x", ITEMS)),  # another port
        (server("a:80", "x", ["/"] * 9), server("b:80", "x", ["/"] * 9)),  # any server is asked for that
        (server("a:80", "x"), server("b:80", "x", ITEMS)),  # of one of them nothing is seen
        (server("a:80", "x", ["/cart"]), server("b:80", "x", ["/user"])),  # too little is seen
    ],
    ids=["callers", "port", "common", "one unseen", "few"],
)
def test_in_doubt_servers_are_services_of_their_own(one: Server, other: Server) -> None:
    assert len(set(names(one, other))) == 2


def test_nodes_that_ask_each_other_are_replicas() -> None:
    nodes = [server(f"n{n}:7000", "client " + " ".join(f"n{m}" for m in range(3) if m != n), ITEMS) for n in range(3)]
    assert names(*nodes) == ["port 7000"] * 3


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ("swift-asked swift-login", "swift-proxy"),
        ("swift-login", "swift-auth"),
        ("account-target container-target", "swift-account"),
        ("proxy-asks-container container-target", "swift-container"),
        ("object-server-asks object-target", "swift-container"),
        ("object-target proxy-asks-object", "swift-object"),
        ("container-server-asks container-target", "swift-account"),
        ("minio-answers s3-answers", "minio"),
        ("rgw-answers s3-answers", "radosgw"),
        ("s3-answers nginx-answers", "s3"),
        ("nginx-answers", "nginx"),
        ("varnish-adds apache-answers", "varnish"),
        ("squid-adds lighttpd-answers", "squid"),
        ("tomcat-answers apache-answers", "tomcat"),
        ("tls-hello", "a:80"),
        ("container-target", "a:80"),  # of an account or a container server
    ],
)
def test_software_is_known_by_its_messages(seen: str, expected: str) -> None:
    assert names(server("a:80", targets=ITEMS, seen=seen)) == [expected]


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ("postgresql-asked", "postgresql"),
        ("memcached-command", "a:80"),
        ("memcached-command memcached-answer", "memcached"),
        ("ceph-osd-asked ceph-frame-in ceph-frame-out", "ceph-osd"),
        ("tls-hello", "a:80"),
        ("fastcgi-begins", "a:80"),
    ],
)
def test_software_is_known_by_first_bytes_where_no_http_was_seen(seen: str, expected: str) -> None:
    assert names(server("a:80", seen=seen)) == [expected]
    assert names(server("a:80", targets=ITEMS, seen=seen)) == ["a:80"], "bytes of a body"


def test_a_probe_names_nothing() -> None:
    probed = server("a:8080", targets=ITEMS, requests=1_000)
    probed.counts[PLACE["swift-asked"]] = 10
    assert names(probed) == ["a:8080"]


def test_what_speaks_tls_says_so() -> None:
    (info,) = name_services([server("a:443", seen="tls-hello")], {}, all_are_replicas)
    assert info == ServiceInfo("a", 443, "a:443", "speaks TLS")


def test_of_an_account_server_its_neighbour_shows_what_it_is() -> None:
    account = server("s1:6202", "s2", ["/d1/12/AUTH_t/c"], "container-target")
    container = server("s1:6201", "proxy", ["/d1/12/AUTH_t/c"], "container-read")
    assert names(account, container) == ["swift-account", "swift-container"]


def test_what_is_only_written_beside_an_object_server_is_a_container_server() -> None:
    """A cut capture shows no User-Agent: both get an object's PUT, and only one is read."""
    target = ["/d1/12/AUTH_t/c/o"]
    container = server("s1:6201", "s2 s3", target, "object-target")
    read = server("s1:6200", "proxy", target, "object-target object-read")
    assert names(container, read) == ["swift-container", "swift-object"]
    written = server("s1:6200", "proxy", target, "object-target")
    assert names(container, written) == ["swift-object", "swift-object"], "nothing shows which is which"


def test_what_is_not_there_has_no_neighbours() -> None:
    """What gets nothing but objects' PUTs is no container server, so what is beside it is no account server."""
    busy = [server(f"s{n}:6201", "proxy", ["/d1/4/AUTH_t/c"], "container-read") for n in range(2)]
    idle = server("s2:6201", "proxy", ["/d1/4/AUTH_t/c"], "container-target")
    written = server("s2:6200", "proxy", ["/d1/12/AUTH_t/c/o"], "object-target")
    assert names(*busy, idle, written) == ["swift-container"] * 3 + ["swift-object"]


def test_a_node_that_was_hardly_asked_is_what_all_others_at_its_port_are() -> None:
    busy = [server(f"s{n}:6201", "proxy", ["/d1/4/AUTH_t/c"], "container-read") for n in range(2)]
    idle = server("s2:6201", "proxy", ["/d1/4/AUTH_t/c"], "container-target")
    assert names(*busy, idle) == ["swift-container"] * 3
    assert names(*busy, server("s2:6201", "proxy", ["/x"])) == ["swift-container", "swift-container", "s2:6201"]


def test_databases_of_the_same_software_are_services_of_their_own() -> None:
    found = names(
        server("users:5432", "u", seen="postgresql-asked"), server("orders:5432", "o", seen="postgresql-asked")
    )
    assert found == ["postgresql users:5432", "postgresql orders:5432"]


def test_what_a_relay_passes_on_is_not_its_own() -> None:
    """HAProxy hands the header `Server` of what is behind it to its clients."""
    front = server("lb:80", "client", ITEMS, "gunicorn-answers")
    behind = server("app:8000", "lb", ITEMS, "gunicorn-answers")
    assert names(front, behind) == ["lb:80", "gunicorn"]
    store = server("s3:9000", "lb", ITEMS, "minio-answers s3-answers")
    assert names(server("lb:80", "client", ITEMS, "nginx-answers s3-answers"), store) == ["nginx", "minio"]
    assert names(server("lb:80", "client", ITEMS, "minio-answers"), store) == ["lb:80", "minio"]


def test_a_forward_proxy_is_sent_the_origins_address_too() -> None:
    asked = [f"GET http://app:8000{path}" for path in ITEMS]
    assert [_in_origin_form(text) for text in asked] == [f"GET {path}" for path in ITEMS]
    assert _in_origin_form("CONNECT app:443") == "CONNECT app:443"
    assert _in_origin_form("GET http://app") == "GET /"


def test_why_a_relay_has_no_name_is_said() -> None:
    front = server("pool:3306", "client", seen="mysql-asked")
    found = name_services([front, server("db:3306", "pool", seen="mysql-asked")], {}, all_are_replicas)
    (words,) = [each.evidence for each in found if each.host == "pool"]
    assert words == "what shows mysql may be forwarded from the server that it calls"


def test_an_app_that_asks_another_app_is_no_relay() -> None:
    front = server("a:8000", "client", [f"/orders/{n}" for n in range(20)], "gunicorn-answers")
    behind = server("b:8001", "a", [f"/users/{n}" for n in range(20)], "gunicorn-answers")
    assert names(front, behind) == ["gunicorn a:8000", "gunicorn b:8001"]


def test_nodes_of_a_store_are_no_relays() -> None:
    nodes = [
        server("s1:6201", "proxy s3", ["/d1/4/AUTH_t/c"], "container-read"),
        server("s2:6201", "s1", ["/d1/4/AUTH_t/c"], "container-read"),
    ]
    assert names(*nodes) == ["swift-container"] * 2


def test_the_operators_word_beats_evidence() -> None:
    one, other = (
        server("a:80", targets=ITEMS, seen="nginx-answers"),
        server("b:81", targets=ITEMS, seen="nginx-answers"),
    )
    assert names(one, other, a_80="edge") == ["edge", "nginx"]
    assert names(one, other, a_80="nginx") == ["nginx", "nginx b:81"], "one name is one service"


def conversation(server_port: int, asked: bytes, answered: bytes) -> list[tuple[int, bytes]]:
    """A client's packets, 1 ms apart: a handshake, a request and a response."""

    def packet(asks: bool, seq: int, ack: int, flags: int, payload: bytes) -> bytes:
        ends, ports = (b"\n\0\0\1", b"\n\0\0\2"), (40_000, server_port)
        src, dst = (0, 1) if asks else (1, 0)
        tcp = struct.pack(">HHIIBBHHH", ports[src], ports[dst], seq, ack, 0x50, flags, 1_000, 0, 0) + payload
        ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(tcp), 1, 0, 64, 6, 0) + ends[src] + ends[dst]
        return bytes(12) + b"\x08\0" + ip + tcp

    packets = [
        packet(True, 100, 0, 0x02, b""),
        packet(False, 500, 101, 0x12, b""),
        packet(True, 101, 501, 0x18, asked),
        packet(False, 501, 101 + len(asked), 0x18, answered),
    ]
    return [(number * 1_000_000, data) for number, data in enumerate(packets)]


@pytest.mark.parametrize(
    ("asked", "answered", "expected"),
    [
        (b"GET /a HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK\r\nServer: nginx\r\nContent-Length: 0\r\n\r\n", "nginx"),
        (b"GET /a HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "10.0.0.2:8080"),
        (b"*1\r\n$4\r\nPING\r\n", b"+PONG\r\n", "redis"),
        (b"\x00\x00\x00\x08\x04\xd2\x16\x2f", b"N", "postgresql"),
        (b"get key\r\n", b"END\r\n", "memcached"),
        (b"\x0e\x00\x00\x00\x03SELECT 17 + 1", b"\x01\x00\x00\x01\x01", "mysql"),
        (
            b"GET /a HTTP/1.1\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nServer: Apache\r\nX-Varnish: 32770\r\nContent-Length: 0\r\n\r\n",
            "varnish",
        ),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\x16\x03\x03", None),  # a handshake is no request
        (b"", b"", None),
    ],
)
def test_from_packets_to_names(tmp_path: Path, asked: bytes, answered: bytes, expected: str | None) -> None:
    """A host's capture alone; the same name in `trace.json` and for the exchange."""
    file, trace = tmp_path / "client.pcap", str(tmp_path / "trace")
    file.write_bytes(pcap(conversation(8080, asked, answered)))
    ran = CliRunner().invoke(replay.command, ["-o", trace, str(file)], catch_exceptions=False)
    assert ran.exit_code == 0
    services = Trace(trace).read("exchanges")["service"].to_pylist()
    assert services == ([expected] if expected else [])
    found = ServiceNames(Trace(trace).info().services)
    assert found.of("10.0.0.2", 8080) == (expected or "10.0.0.2:8080")


def test_options_name_services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWINTAP_SERVICES", "")
    own, file, trace = tmp_path / "own.toml", tmp_path / "client.pcap", str(tmp_path / "trace")
    file.write_bytes(pcap(conversation(8080, b"GET /a HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n")))
    own.write_text('[ports]\n8080 = "edge"\n')
    given = ["-o", trace, "--services", str(own), str(file)]

    def service(*more: str) -> str:
        CliRunner().invoke(replay.command, [*more, *given], catch_exceptions=False)
        (name,) = Trace(trace).read("exchanges")["service"].to_pylist()
        return str(name)

    assert service() == "edge"
    assert service("--name", "10.0.0.2:8080=front") == "front"


def test_a_name_of_no_server_is_said(tmp_path: Path) -> None:
    file, trace = tmp_path / "client.pcap", str(tmp_path / "trace")
    file.write_bytes(pcap(conversation(8080, b"GET /a HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n")))

    def output_with(name: str) -> str:
        ran = CliRunner().invoke(replay.command, ["-o", trace, "--name", name, str(file)], catch_exceptions=False)
        return " ".join(ran.output.split())

    near = "names no server of this trace; there are 10.0.0.2:8080"
    assert f"--name 10.0.0.2:8081=shop {near}" in output_with("10.0.0.2:8081=shop")
    assert f"--name web:8080=shop {near}" in output_with("web:8080=shop")
    assert "--name db:5432=x names no server of this trace: none has that host or port" in output_with("db:5432=x")
    assert "names no server" not in output_with("10.0.0.2:8080=shop")


@pytest.mark.parametrize("text", ["db", "db=x", "db:x=y", "db:99999=x", ":80=x", "db:80=", "db:80"])
def test_a_name_that_names_no_server_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="names no server"):
        CliRunner().invoke(replay.command, ["--name", text, "x.pcap"], catch_exceptions=False)


def owned_server(
    place: str, *processes: str, unit: str | None = None, pod: str | None = None, seen: str = ""
) -> Server:
    """A server whose connections these processes own."""
    made = server(place, seen=seen)
    made.owners = {ServerOwner(each, f"/usr/bin/{each}", unit, None, pod) for each in processes}
    return made


def test_a_process_names_its_server_where_no_message_does() -> None:
    cases = [
        (owned_server("a:8080", "postgres"), "postgres"),
        (owned_server("a:8080", "java", unit="shop.service"), "shop"),
        (owned_server("a:8080", "python3.11", pod="cart-0"), "cart-0"),
        (owned_server("a:8080", "python3"), "a:8080"),
        (owned_server("a:8080", "docker-proxy"), "a:8080"),
        (owned_server("a:8080", "one", "two"), "a:8080"),
        (owned_server("a:6379", "valkey-server", seen="redis-command"), "redis"),
    ]
    for given, expected in cases:
        assert names(given) == [expected]


def test_servers_of_one_process_name_keep_their_places_and_others_are_no_replicas() -> None:
    assert names(owned_server("a:80", "web"), owned_server("a:81", "web")) == ["web a:80", "web a:81"]
    assert names(owned_server("a:80", "web"), owned_server("b:80", "web")) == ["web", "web"]
    assert names(owned_server("a:80", "web"), owned_server("b:80", "api")) == ["web", "api"]
    assert names(server("a:80"), owned_server("b:80", "api")) == ["api", "api"]


def test_the_process_is_in_the_evidence() -> None:
    (found,) = name_services(
        [owned_server("a:5432", "postgres", unit="postgresql@15-main.service")], {}, all_are_replicas
    )
    assert found.evidence == "its process is postgres (postgresql@15-main.service)"
    cut = server("a:80")
    cut.owners = {ServerOwner("a-long-program-", "/opt/a-long-program-name", None, None, None)}
    (found,) = name_services([cut], {}, all_are_replicas)
    assert (found.name, found.evidence) == ("a-long-program-name", "its process is a-long-program-name")
