"""TLS that is opened with a key log reads as the same conversation in the clear; what cannot be opened is counted.

OpenSSL encrypts, in memory; the packets are written around its records.
"""

import itertools
import re
import ssl
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

from collector.commands import replay
from collector.trace.reading import Trace
from tests.helpers import tls_captures as tls
from tests.helpers.system_tools import needs

pytestmark = needs("openssl", "openssl")

V12, V13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
SUITES = [
    (V12, "ECDHE-ECDSA-AES128-GCM-SHA256"),
    (V12, "ECDHE-ECDSA-AES256-GCM-SHA384"),
    (V12, "ECDHE-ECDSA-CHACHA20-POLY1305"),
    (V12, "ECDHE-ECDSA-AES128-CCM"),
    (V12, "ECDHE-ECDSA-AES256-CCM8"),
    (V13, None),
]
SIZES = [(0, 0), (10, 1_000), (0, 100_000), (70_000, 3), (16_384, 16_384)]
"""Bytes of the bodies of requests and answers."""
SHOWN = ["method", "target", "status", "request_bytes", "response_bytes", "response_due_bytes", "complete", "protocol"]
SECRET = "Bearer 7f3aPlantedInsideTls9c1e"


def conversation() -> list[tls.Message]:
    said = []
    for number, (asked, answered) in enumerate(SIZES):
        head = f"PUT /item/{number}?n={number} HTTP/1.1\r\nHost: shop\r\nAuthorization: {SECRET}\r\n"
        said.append((True, f"{head}Content-Length: {asked}\r\n\r\n".encode() + b"a" * asked))
        answer = f"HTTP/1.1 200 OK\r\nSet-Cookie: id={SECRET[7:]}\r\nContent-Length: {answered}\r\n\r\n"
        said.append((False, answer.encode() + b"b" * answered))
    return said


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tls.certificate(tmp_path_factory.mktemp("certificate"))


def trace_of(place: Path, *arguments: str | Path) -> tuple[Trace, str]:
    """A trace of captures, and what is printed."""
    result = CliRunner().invoke(replay.command, ["--quiet", "-o", str(place), *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return Trace(str(place)), result.output


def table(trace: Trace, name: str) -> pl.DataFrame:
    return pl.DataFrame(trace.read(name)).with_columns(pl.col(pl.Categorical).cast(pl.String))


def counters(trace: Trace) -> dict[str, int]:
    found: dict[str, int] = {}
    for counter in trace.info().counters:
        found[counter.name] = found.get(counter.name, 0) + counter.count
    return found


@pytest.mark.parametrize(("version", "ciphers"), SUITES)
def test_requests_are_those_of_the_clear(
    version: ssl.TLSVersion, ciphers: str | None, pem: Path, tmp_path: Path
) -> None:
    said = conversation()
    (tmp_path / "clear").mkdir()
    clear = table(
        trace_of(tmp_path / "1", *tls.write_pcaps(tmp_path / "clear", tls.in_the_clear(said)))[0], "exchanges"
    )
    packets = tls.encrypted_packets(said, pem, tmp_path / "keys", version, ciphers)
    files = tls.write_pcaps(tmp_path, packets)
    trace, _ = trace_of(tmp_path / "2", "--keys", tmp_path / "keys", *files)
    opened = table(trace, "exchanges")
    assert opened.select(SHOWN).rows() == clear.select(SHOWN).rows()
    assert len(opened) == len(SIZES)
    connection = table(trace, "connections")
    assert connection.select("protocol", "tls_opened").rows() == [("http/1.1", True)]
    assert opened["tls_start_trace_ns"].drop_nulls().len() == 1
    # A message ends when the record arrives that holds its last byte.
    last = table(trace, "hops").filter(pl.col("kind") == "data", ~pl.col("from_client"))["receive_trace_ns"]
    assert set(opened["response_last_received_trace_ns"]) <= set(last)
    assert not counters(trace).keys() & {"tls_not_opened", "tls_records_not_opened", "tls_suite_not_opened"}


@pytest.mark.parametrize("first", [True, False])
def test_secrets_in_one_capture_open_all(first: bool, pem: Path, tmp_path: Path) -> None:
    packets = tls.encrypted_packets(conversation(), pem, tmp_path / "keys", V13)
    client, server = tls.write_pcaps(tmp_path, packets)
    server = tls.with_secrets(server, (tmp_path / "keys").read_bytes(), first)
    trace, _ = trace_of(tmp_path / "trace", client, server)
    assert table(trace, "exchanges")["target"].to_list() == [f"/item/{n}?n={n}" for n in range(len(SIZES))]


def test_without_keys_turns_are_requests(pem: Path, tmp_path: Path) -> None:
    files = tls.write_pcaps(tmp_path, tls.encrypted_packets(conversation(), pem, tmp_path / "keys", V13))
    trace, _ = trace_of(tmp_path / "trace", *files)
    assert table(trace, "exchanges")["method"].null_count() == len(SIZES)
    assert table(trace, "connections").select("protocol", "tls_opened").rows() == [("tls", False)]
    assert not [name for name in counters(trace) if name.startswith("tls_")]


def test_keys_of_other_connections_open_nothing(pem: Path, tmp_path: Path) -> None:
    files = tls.write_pcaps(tmp_path, tls.encrypted_packets(conversation(), pem, tmp_path / "keys", V13))
    tls.encrypted_packets(conversation()[:2], pem, tmp_path / "others", V13)
    trace, _ = trace_of(tmp_path / "trace", "--keys", tmp_path / "others", *files)
    assert table(trace, "exchanges")["method"].null_count() == len(SIZES)
    assert counters(trace)["tls_not_opened"] == 2  # at both ends


def test_a_record_whose_tag_is_wrong_is_not_read(pem: Path, tmp_path: Path) -> None:
    files = tls.write_pcaps(tmp_path, tls.encrypted_packets(conversation(), pem, tmp_path / "keys", V13))
    lines = (tmp_path / "keys").read_text()
    (tmp_path / "keys").write_text(re.sub(r"[0-9a-f]{8}$", "01234567", lines, flags=re.MULTILINE))
    trace, _ = trace_of(tmp_path / "trace", "--keys", tmp_path / "keys", *files)
    assert table(trace, "exchanges")["method"].null_count() == len(table(trace, "exchanges"))
    assert table(trace, "connections")["tls_opened"].to_list() == [False]
    assert counters(trace)["tls_records_not_opened"] > 0


@pytest.mark.parametrize(("version", "ciphers"), [SUITES[0], SUITES[2], SUITES[-1]])
def test_behind_what_is_missing_opening_goes_on(
    version: ssl.TLSVersion, ciphers: str | None, pem: Path, tmp_path: Path
) -> None:
    packets = tls.encrypted_packets(conversation(), pem, tmp_path / "keys", version, ciphers)
    large = [number for number, (_, from_client, data) in enumerate(packets) if not from_client and len(data) > 1_400]
    missing = large[len(large) // 2]  # within the answer of 100,000 bytes
    files = tls.write_pcaps(tmp_path, [each for number, each in enumerate(packets) if number != missing])
    trace, _ = trace_of(tmp_path / "trace", "--keys", tmp_path / "keys", *files)
    targets = table(trace, "exchanges")["target"].drop_nulls().to_list()
    assert targets == [f"/item/{n}?n={n}" for n in range(len(SIZES))]
    assert counters(trace)["tls_records_not_opened"] == 2  # at both ends


def test_of_packets_that_are_cut_whole_records_are_opened(pem: Path, tmp_path: Path) -> None:
    files = tls.write_pcaps(tmp_path, tls.encrypted_packets(conversation(), pem, tmp_path / "keys", V13), snaplen=1_000)
    trace, _ = trace_of(tmp_path / "trace", "--keys", tmp_path / "keys", *files)
    assert "/item/0?n=0" in table(trace, "exchanges")["target"].to_list()
    assert counters(trace)["tls_records_not_opened"] > 0


def test_what_is_not_opened_in_one_capture_is_known_from_the_other(pem: Path, tmp_path: Path) -> None:
    packets = tls.encrypted_packets(conversation(), pem, tmp_path / "keys", V13)
    client, server = tls.write_pcaps(tmp_path, packets)
    (tmp_path / "cut").mkdir()
    client, _ = tls.write_pcaps(tmp_path / "cut", packets, snaplen=1_000)
    trace, _ = trace_of(tmp_path / "trace", "--keys", tmp_path / "keys", client, server)
    assert table(trace, "exchanges")["target"].to_list() == [f"/item/{n}?n={n}" for n in range(len(SIZES))]
    assert all(table(trace, "exchanges")["complete"])


def test_neither_keys_nor_what_is_secret_inside_reaches_a_trace(pem: Path, tmp_path: Path) -> None:
    packets = tls.encrypted_packets(conversation(), pem, tmp_path / "keys", V13)
    files = tls.write_pcaps(tmp_path, packets)
    trace, said = trace_of(tmp_path / "trace", "--keys", tmp_path / "keys", *files)
    words = (tmp_path / "keys").read_text().split()
    hexadecimal = [word for word in words if re.fullmatch("[0-9a-f]{64,}", word)]
    assert len(hexadecimal) >= 8
    random = hexadecimal[0]  # of the hello: it is on the wire
    secrets = [word for word in hexadecimal if word != random]
    planted = [*itertools.chain(*((each.encode(), bytes.fromhex(each)) for each in secrets)), SECRET[7:].encode()]
    written = [said.encode(), *(file.read_bytes() for file in (tmp_path / "trace").rglob("*") if file.is_file())]
    texts = [str(table(trace, name).rows()).encode() for name in ("messages", "exchanges", "connections", "findings")]
    for text in [*written, *texts]:
        assert not [secret for secret in planted if secret in text]
    assert len(table(trace, "messages")) > 2 * len(SIZES)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "holds no secrets"),
        ("CLIENT_RANDOM 00 11\n", "holds no secrets"),
        (None, "cannot be read: No such file or directory;"),
    ],
)
def test_a_file_that_is_no_key_log_is_refused(text: str | None, what: str, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    if text is not None:
        keys.write_text(text)
    result = CliRunner().invoke(replay.command, ["--keys", str(keys), "client=none.pcap"])
    assert result.exit_code != 0
    assert what in str(result.exception) + result.output
    assert "11" not in result.output
