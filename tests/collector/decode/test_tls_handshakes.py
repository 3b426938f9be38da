"""What TLS handshakes say: a real capture of nginx, PostgreSQL and `openssl s_server` with Python, openssl and psql
(`python -m benchmarks.real_systems tls-handshakes`), held against tshark's fields of the same packets."""

import gzip
import shutil
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner

from collector.commands.replay import command as replay
from collector.queries import open_trace
from collector.queries.search import TraceSearch
from collector.trace.reading import Trace
from viewer.wording import hop_facts

CAPTURES = Path(__file__).parents[2] / "golden" / "tls" / "handshakes"
HOSTS = ("client", "db", "web")
FIELDS = (
    *("tcp.srcport", "tcp.dstport", "tls.handshake.type", "tls.handshake.extensions_server_name"),
    *("tls.handshake.extensions_alpn_str", "tls.handshake.ciphersuite", "tls.handshake.extensions.supported_version"),
    *("tls.handshake.extension.type", "tls.alert_message.desc", "tls.handshake.version", "tls.handshake.random"),
)
PORTS = range(8443, 8448)
RETRY = "cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c"
VERSIONS = {"0x0303": "1.2", "0x0304": "1.3"}
ALERTS = {"40": "handshake_failure", "48": "unknown_ca", "70": "protocol_version"}


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = str(tmp_path_factory.mktemp("handshakes") / "trace")
    files = [str(CAPTURES / f"{host}.pcap.gz") for host in HOSTS]
    result = CliRunner().invoke(replay, ["--quiet", "-o", url, *files])
    assert result.exit_code == 0, result.output
    return url


def connections_of(trace: str) -> list[dict[str, Any]]:
    rows = pl.DataFrame(Trace(trace).read("connections")).with_columns(pl.col(pl.Categorical).cast(pl.String))
    return rows.to_dicts()


def packets_of_tshark(folder: Path) -> Iterator[dict[str, list[str]]]:
    program = shutil.which("tshark")
    if program is None:
        pytest.skip("tshark is not installed")
    file = folder / "client.pcap"
    file.write_bytes(gzip.decompress((CAPTURES / "client.pcap.gz").read_bytes()))
    as_tls = [word for port in PORTS for word in ("-d", f"tcp.port=={port},tls")]
    fields = [word for field in FIELDS for word in ("-e", field)]
    command = [program, "-r", str(file), "-Y", "tls", *as_tls, "-T", "fields", "-E", "aggregator=|", *fields]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, env={"LC_ALL": "C"}).stdout
    for line in printed.splitlines():
        cells = (cell.split("|") if cell else [] for cell in line.split("\t"))
        yield dict(zip(FIELDS, cells, strict=True))


def handshakes_of_tshark(folder: Path, servers: set[int]) -> dict[int, dict[str, Any]]:
    """By the client's port, what tshark finds."""
    found: dict[int, dict[str, Any]] = defaultdict(dict)
    for packet in packets_of_tshark(folder):
        source, target = int(packet["tcp.srcport"][0]), int(packet["tcp.dstport"][0])
        said = found[source if target in servers else target]
        versions = packet["tls.handshake.extensions.supported_version"]
        types, suites = packet["tls.handshake.type"], packet["tls.handshake.ciphersuite"]
        extensions = packet["tls.handshake.extension.type"]
        if types[:1] == ["1"] and "tls_server_name" not in said:
            said["tls_server_name"] = next(iter(packet["tls.handshake.extensions_server_name"]), "").lower() or None
            said["tls_alpn_offered"] = ", ".join(packet["tls.handshake.extensions_alpn_str"]) or None
            said["tls_early_data_offered"] = "42" in extensions
        elif types[:1] == ["2"]:
            is_retry = packet["tls.handshake.random"] == [RETRY]
            said["tls_retried"] = said.get("tls_retried", False) or is_retry
            if not is_retry:
                said["tls_cipher_number"] = int(suites[0], 0)
                said["tls_version"] = VERSIONS[(versions or packet["tls.handshake.version"])[0]]
                said["tls_alpn"] = next(iter(packet["tls.handshake.extensions_alpn_str"]), None)
                said["accepts_psk"] = "41" in extensions
        for alert in packet["tls.alert_message.desc"]:
            if alert in ALERTS:
                said["tls_alert"] = ALERTS[alert]
                said["tls_alert_from"] = "server" if source in servers else "client"
    return found


def test_handshakes_are_those_that_tshark_reads(trace: str, tmp_path: Path) -> None:
    rows = [row for row in connections_of(trace) if row["tls_evidence"] is not None]
    theirs = handshakes_of_tshark(tmp_path, {row["server_port"] for row in rows})
    assert len(rows) == len(theirs) == 57
    for row in rows:
        said = theirs[row["client_port"]]
        for column in (column for column in said if column in row):
            assert row[column] == said[column], (column, row)
        assert (row["tls_resumption"] == "psk") == said.get("accepts_psk", False)
        assert (row["tls_alert"] is None) == ("tls_alert" not in said)
        assert (row["tls_cipher"] is None) == ("tls_cipher_number" not in said)


def test_a_hello_of_two_packets_is_read_whole(trace: str) -> None:
    long = [row for row in connections_of(trace) if row["tls_server_name"] == "long.example"]
    assert len(long) == 3
    assert {row["tls_alpn_offered"].count(", ") for row in long} == {12}
    assert {row["tls_evidence"] for row in long} == {"both"}


def test_a_server_that_nothing_else_names_is_called_as_its_clients_ask_for_it(trace: str) -> None:
    services = {one.port: one.name for one in Trace(trace).info().services}
    assert (services[8445], services[8446]) == ("retried.example", "early.example")
    assert services.get(8443, "web:8443") == "web:8443"


def test_no_handshake_ticket_or_alert_is_a_request(trace: str) -> None:
    """Each of Python's connections sent one GET, but of HTTP/2 and failed handshakes nothing; psql its start and a
    query; openssl nothing behind its handshake, or early data, which counts as part of it."""
    counts = Counter(Trace(trace).read("exchanges", ["connection_id"])["connection_id"].to_pylist())
    for row in connections_of(trace):
        sent_get = row["tls_alert"] is None and row["server_port"] <= 8445 and row["tls_server_name"] != "shop.example"
        expected = 2 if row["server_port"] == 5432 else int(sent_get)
        assert counts[row["connection_id"]] == expected, row


def test_handshakes_are_found_and_shown(trace: str) -> None:
    view = open_trace(trace)
    search = TraceSearch(view)
    rows = connections_of(trace)

    def count(query: str) -> int:
        hits = search.hits(query)
        assert not hits.problem
        return hits.count

    named = [row for row in rows if row["tls_server_name"] == "retried.example"]
    assert len(named) == count("sni:retried.example") == 3
    failed = [row["connection_id"] for row in rows if row["tls_alert"] is not None]
    assert sorted(search.hits("tls:failed").connections) == sorted(failed)
    assert count("tls:protocol_version") == sum(row["tls_alert"] == "protocol_version" for row in rows) == 3
    assert count("tls:1.3 sni:api.example") > 0
    assert count("tls:1.3 sni:retried.example tls:1.2") == 0
    hits = search.hits("tls:unknown_ca")
    assert "failed: the client sent unknown_ca" in search.hit(hits, 0).text
    hop = next(hop for hop in map(view.hop, range(50)) if hop is not None and hop.tls)
    assert ("handshake", hop.tls) in hop_facts(hop)
    assert hop.tls.startswith("TLS 1.")
