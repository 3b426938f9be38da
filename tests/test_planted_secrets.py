"""Secrets planted in 240 places of packets and command lines: none is in anything that is kept or shown."""

import json
import ssl
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

from collector.capture_files.readers import open_capture
from collector.commands import export, replay, report
from collector.decode.sources import COMMAND_FILE
from collector.queries import captured, open_trace
from collector.queries.selection import Selection, write_csv, write_parquet
from collector.trace.reading import Trace
from collector.trace.schema import TABLES
from tests.helpers import tls_captures
from tests.helpers.planted_secrets import (
    Place,
    ceph_places,
    found_in,
    http2_places,
    kafka_places,
    memcached_places,
    mongodb_documents,
    mongodb_places,
    mysql_places,
    places,
    postgresql_places,
    redis_places,
    tls_places,
    websocket_places,
    write_captures,
    zookeeper_places,
)
from tests.helpers.system_tools import needs
from tracer import secret_rules
from tracer.errors import InputError
from viewer.app import create_app

PLANTED = places()
ARGV = ["swift", "-K", PLANTED[0].secret, "--os-password", PLANTED[1].secret, f"http://u:{PLANTED[2].secret}@h/"]
ARGV += [f"PASS={PLANTED[3].secret}", "-H", f"X-Auth-Token: {PLANTED[4].secret}", f"/?code={PLANTED[5].secret}"]


@pytest.fixture(autouse=True)
def _choice(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(secret_rules.VARIABLE, "")  # noted, so that what a test chooses is forgotten after it
    monkeypatch.delenv(secret_rules.VARIABLE)
    secret_rules.keep_secrets(wanted=False)
    yield
    secret_rules.keep_secrets(wanted=False)


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as `tracer record` leaves it, but made by tcpdump and by a version that kept the command line."""
    folder = tmp_path_factory.mktemp("planted")
    for file in write_captures(folder, PLANTED):
        (folder / file.stem).mkdir()
        file.rename(folder / file.stem / f"{file.stem}.pcap")
    times = {"started_host_ns": 1_790_000_000 * 10**9, "ended_host_ns": 1_790_000_100 * 10**9, "exit_status": 0}
    (folder / COMMAND_FILE).write_text(json.dumps({"argv": ARGV, "host": "client"} | times))
    return folder


def run(command: object, *arguments: str) -> str:
    result = CliRunner().invoke(command, arguments)  # type: ignore[arg-type]
    assert result.exit_code == 0, result.output
    return result.output + result.stderr


@pytest.fixture(scope="module")
def replayed(captures: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The trace of them, and what the terminal showed."""
    trace = str(tmp_path_factory.mktemp("out") / "trace")
    return trace, run(replay.command, "-o", trace, str(captures))


def strings(trace: str) -> str:
    """Every text of every table."""
    texts = []
    for name in TABLES:
        frame = pl.DataFrame(Trace(trace).read(name)).with_columns(pl.col(pl.Categorical).cast(pl.String))
        texts += ["\n".join(frame[column].drop_nulls().unique()) for column in frame.select(pl.col(pl.String)).columns]
    return "\n".join(texts)


def test_more_than_two_hundred_places_hold_one() -> None:
    assert len(PLANTED) > 240
    assert len({place.secret for place in PLANTED}) == len(PLANTED)


def test_no_table_nor_the_trace_file_nor_the_terminal_holds_one(replayed: tuple[str, str]) -> None:
    trace, said = replayed
    assert found_in(strings(trace), PLANTED) == []
    for file in Path(trace).iterdir():
        assert found_in(file.read_bytes(), PLANTED) == [], file
    assert found_in(said, PLANTED) == []
    assert "swift -K xxxxxxxxxxxx" in said


def test_ids_are_kept_and_join_both_ends(replayed: tuple[str, str]) -> None:
    exchanges = pl.DataFrame(Trace(replayed[0]).read("exchanges"))
    assert set(exchanges["transaction_id"]) == {f"tx{number:04d}" for number in range(len(PLANTED))}
    hops = pl.DataFrame(Trace(replayed[0]).read("hops", ["state"]))
    assert set(hops["state"].cast(pl.String)) == {"matched"}


def test_no_report_and_no_export_holds_one(replayed: tuple[str, str], tmp_path: Path) -> None:
    trace, _ = replayed
    assert found_in(run(report.command, trace, "--html", str(tmp_path / "report.html")), PLANTED) == []
    assert found_in(run(report.command, trace, "--json"), PLANTED) == []
    run(export.command, "--to", "csv", "-o", str(tmp_path / "csv"), trace)
    run(export.command, "--to", "perfetto", "-o", str(tmp_path / "perfetto"), trace)
    view = open_trace(trace)
    everything = Selection(from_ns=0, to_ns=view.duration_ns + 1)
    write_csv(view, everything, tmp_path / "hops.csv")
    write_parquet(view, everything, tmp_path / "hops.parquet")
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > len(TABLES)
    for file in files:
        assert found_in(file.read_bytes(), PLANTED) == [], file


def test_packets_cut_from_a_capture_hold_none_and_are_as_long(
    replayed: tuple[str, str], captures: Path, tmp_path: Path
) -> None:
    view = open_trace(replayed[0])
    captured.write_pcapng(view, Selection(from_ns=0, to_ns=view.duration_ns + 1), tmp_path / "cut.pcapng")
    content = (tmp_path / "cut.pcapng").read_bytes()
    assert found_in(content, PLANTED) == []
    assert content.count(b"X-Trans-Id: tx") == 4 * len(PLANTED)  # each head whole, at both ends
    whole = b"".join(path.read_bytes() for path in captures.rglob("*.pcap"))
    assert len(found_in(whole, PLANTED)) >= 2 * len(PLANTED)
    with open_capture(tmp_path / "cut.pcapng") as cut:
        lengths = sorted(int(length) for batch in cut.batches() for length in batch.events["captured_len"])
    assert lengths == sorted(length for path in captures.rglob("*.pcap") for length in _lengths(path))


def _lengths(path: Path) -> list[int]:
    with open_capture(path) as reader:
        return [int(length) for batch in reader.batches() for length in batch.events["original_len"]]


def test_no_page_holds_one(replayed: tuple[str, str]) -> None:
    view = open_trace(replayed[0])
    server = create_app(view).server
    client = server.test_client()
    paths = [str(rule) for rule in server.url_map.iter_rules() if not rule.arguments and "GET" in (rule.methods or ())]
    paths += [f"/api/requests/{number}/{what}" for number in range(0, 300, 7) for what in ("arrows", "details")]
    paths += [f"/api/hops/{number}{what}" for number in range(3, 1400, 61) for what in ("", "/fields")]
    paths += [f"/save/{form}?from=0&to={view.duration_ns}" for form in ("csv", "parquet", "pcapng", "html")]
    paths += [f"/transaction/tx{number:04d}" for number in range(0, 300, 50)]
    answered, leaks = 0, {}
    for path in paths:
        with client.get(path) as answer:
            answered += answer.status_code == 200
            leaks |= {path: found} if (found := found_in(answer.data, PLANTED)) else {}
    assert answered > 60
    assert leaks == {}


@pytest.mark.parametrize(
    ("protocol", "planted"),
    [("http/2", http2_places()), ("ceph", ceph_places()), ("mongodb", mongodb_places())],
)
def test_no_secret_in_frames_is_kept_or_shown(protocol: str, planted: list[Place], tmp_path: Path) -> None:
    trace = str(tmp_path / "trace")
    files = write_captures(tmp_path, planted)
    assert len(planted) > 40
    assert found_in(files[0].read_bytes(), planted) == [place.name for place in planted for _ in range(2)]
    said = run(replay.command, "-o", trace, *map(str, files))
    view = open_trace(trace)
    captured.write_pcapng(view, Selection(from_ns=0, to_ns=view.duration_ns + 1), tmp_path / "cut.pcapng")
    for content in (said, (tmp_path / "cut.pcapng").read_bytes(), *(f.read_bytes() for f in Path(trace).iterdir())):
        assert found_in(content, planted) == []
    exchanges = _exchanges(trace)
    assert exchanges["protocol"].unique().to_list() == [protocol]
    assert len(exchanges) == len(planted), "frames are read all the same"
    run(replay.command, "-o", str(tmp_path / "again"), str(tmp_path / "cut.pcapng"))
    assert _exchanges(str(tmp_path / "again")).equals(exchanges), "so they are from the packets that were cut out"
    assert [lane.host for lane in open_trace(str(tmp_path / "again")).lanes] == [lane.host for lane in view.lanes]


@pytest.mark.parametrize(("protocol", "planted"), [("postgresql", postgresql_places()), ("mysql", mysql_places())])
def test_no_value_of_sql_is_in_a_trace(protocol: str, planted: list[Place], tmp_path: Path) -> None:
    trace = str(tmp_path / "trace")
    files = write_captures(tmp_path, planted)
    assert {place.name for place in planted} <= set(found_in(files[0].read_bytes(), planted))
    said = run(replay.command, "-o", trace, *map(str, files))
    for content in (said, *(file.read_bytes() for file in Path(trace).iterdir())):
        assert found_in(content, planted) == []
    exchanges = _exchanges(trace)
    assert exchanges["protocol"].unique().to_list() == [protocol]
    assert len(exchanges) == len(planted), "messages are read all the same"
    view = open_trace(trace)
    captured.write_pcapng(view, Selection(from_ns=0, to_ns=view.duration_ns + 1), tmp_path / "cut.pcapng")
    rows = ("row", "error", "notification", "copied in")  # of packets that were captured whole, these are shown
    shown = {name for name in found_in((tmp_path / "cut.pcapng").read_bytes(), planted) if not name.endswith(rows)}
    assert shown == set()


@pytest.mark.parametrize(
    ("name", "planted"),
    [
        *(("redis", redis_places()), ("memcached", memcached_places()), ("mongodb", mongodb_documents())),
        *(("kafka", kafka_places()), ("zookeeper", zookeeper_places())),
    ],
)
def test_no_value_of_a_store_or_a_broker_is_in_a_trace(name: str, planted: list[Place], tmp_path: Path) -> None:
    trace = str(tmp_path / "trace")
    files = write_captures(tmp_path, planted)
    assert {place.name for place in planted} <= set(found_in(files[0].read_bytes(), planted))
    said = run(replay.command, "-o", trace, *map(str, files))
    for content in (said, *(file.read_bytes() for file in Path(trace).iterdir())):
        assert found_in(content, planted) == []
    assert _exchanges(trace)["protocol"].unique().to_list() == [name]


@pytest.mark.parametrize(
    ("planted", "data"),
    [
        (kafka_places(), {"Kafka record", "Kafka error"}),
        (zookeeper_places(), {"ZooKeeper data, client's", "ZooKeeper data, server's"}),
    ],
    ids=["kafka", "zookeeper"],
)
def test_no_password_for_a_broker_is_in_packets_cut_out(planted: list[Place], data: set[str], tmp_path: Path) -> None:
    trace = str(tmp_path / "trace")
    run(replay.command, "-o", trace, *map(str, write_captures(tmp_path, planted)))
    view = open_trace(trace)
    captured.write_pcapng(view, Selection(from_ns=0, to_ns=view.duration_ns + 1), tmp_path / "cut.pcapng")
    shown = found_in((tmp_path / "cut.pcapng").read_bytes(), planted)
    assert set(shown) == data, "of packets that were captured whole, these are shown"


def test_no_key_ticket_or_id_of_a_handshake_is_in_a_trace(tmp_path: Path) -> None:
    trace, planted = str(tmp_path / "trace"), tls_places()
    files = write_captures(tmp_path, planted)
    halves = [place.name for place in planted if place.name == "TLS hello in two records"]
    assert {place.name for place in planted} - set(halves) <= set(found_in(files[0].read_bytes(), planted))
    said = run(replay.command, "-o", trace, *map(str, files))
    for content in (said, *(file.read_bytes() for file in Path(trace).iterdir())):
        assert found_in(content, planted) == []
    connections = pl.DataFrame(Trace(trace).read("connections", ["tls_server_name", "tls_version"]))
    assert connections["tls_server_name"].cast(pl.String).to_list() == ["kept.example"] * len(planted)
    assert connections["tls_version"].cast(pl.String).to_list() == ["1.3"] * len(planted)


def test_no_payload_of_a_websocket_is_in_a_trace(tmp_path: Path) -> None:
    planted, trace = websocket_places(), str(tmp_path / "trace")
    files = write_captures(tmp_path, planted)
    assert {place.name for place in planted} <= set(found_in(files[0].read_bytes(), planted))
    said = run(replay.command, "-o", trace, *map(str, files))
    for content in (said, *(file.read_bytes() for file in Path(trace).iterdir())):
        assert found_in(content, planted) == []
    frames = pl.DataFrame(Trace(trace).read("messages", ["head_kind", "method"])).filter(head_kind=20)
    assert {"text", "binary", "continuation", "ping", "pong", "close"} <= set(frames["method"])
    view = open_trace(trace)
    captured.write_pcapng(view, Selection(from_ns=0, to_ns=view.duration_ns + 1), tmp_path / "cut.pcapng")
    shown = found_in((tmp_path / "cut.pcapng").read_bytes(), planted)
    assert [name for name in shown if "client" in name or "two" in name] == []


@needs("openssl", "openssl")
def test_nothing_that_was_opened_with_keys_shows_more_and_no_key_does(tmp_path: Path) -> None:
    trace, keys = str(tmp_path / "trace"), tmp_path / "keys"
    kinds = [PLANTED, http2_places(), postgresql_places(), mysql_places(), redis_places(), memcached_places()]
    planted = [place for kind in kinds for place in kind[:: 1 + len(kind) // 20]]
    pem, packets = tls_captures.certificate(tmp_path), []
    for number, place in enumerate(planted):
        said = [(True, place.request), (False, place.response)]
        version = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)[number % 2]
        packets += tls_captures.encrypted_packets(said, pem, keys, version, port=41_000 + number)
    files = tls_captures.write_pcaps(tmp_path, packets)
    said = run(replay.command, "-o", trace, "--keys", str(keys), *map(str, files))
    randoms = {line.split()[1] for line in keys.read_text().splitlines() if not line.startswith("#")}
    secrets = {line.split()[2] for line in keys.read_text().splitlines() if not line.startswith("#")}
    assert len(secrets) > 2 * len(planted)
    assert len(randoms) == len(planted)
    view = open_trace(trace)
    captured.write_pcapng(view, Selection(from_ns=0, to_ns=view.duration_ns + 1), tmp_path / "cut.pcapng")
    run(report.command, trace, "--html", str(tmp_path / "report.html"))
    written = [*Path(trace).iterdir(), tmp_path / "cut.pcapng", tmp_path / "report.html"]
    for content in (said.encode(), strings(trace).encode(), *(file.read_bytes() for file in written)):
        assert found_in(content, planted) == []
        assert not [each for each in secrets if each.encode() in content or bytes.fromhex(each) in content]
    connections = pl.DataFrame(Trace(trace).read("connections", ["tls_opened"]))
    assert connections["tls_opened"].to_list() == [True] * len(planted)
    protocols = set(_exchanges(trace)["protocol"])
    assert {"http/1.1", "http/2", "postgresql", "redis", "memcached"} <= protocols
    cut = (tmp_path / "cut.pcapng").read_bytes()
    assert b"HTTP/1.1 200" not in cut, "packets stay encrypted"
    assert len(cut) > len(files[0].read_bytes())


def _exchanges(trace: str) -> pl.DataFrame:
    columns = ["exchange_id", "protocol", "complete", "method", "target", "request_bytes", "response_bytes"]
    return pl.DataFrame(Trace(trace).read("exchanges", columns)).with_columns(
        pl.col("protocol", "method").cast(pl.String)
    )


def test_keep_secrets_is_the_way_around_it(captures: Path, tmp_path: Path) -> None:
    trace = str(tmp_path / "trace")
    run(replay.command, "--keep-secrets", "-o", trace, str(captures))
    in_targets = [place for place in PLANTED if place.name.startswith(("parameter", "path"))]
    assert len(found_in(strings(trace), in_targets)) == 2 * len(in_targets)
    secret_rules.keep_secrets(wanted=False)
    view = open_trace(trace)
    captured.write_pcapng(view, Selection(from_ns=0, to_ns=view.duration_ns + 1), tmp_path / "cut.pcapng")
    assert len(found_in((tmp_path / "cut.pcapng").read_bytes(), PLANTED)) >= 2 * len(PLANTED)


def test_an_operators_rules_add_to_ours_and_stay_with_the_trace(
    captures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rules").write_text("# ours\nheader X-Nothing\nparameter belongsTo\n")
    trace = str(tmp_path / "trace")
    run(replay.command, "--secrets", str(tmp_path / "rules"), "-o", trace, str(captures))
    assert "belongsTo=x" in strings(trace)
    monkeypatch.delenv(secret_rules.VARIABLE)
    secret_rules.keep_secrets(wanted=False)
    view = open_trace(trace)
    captured.write_pcapng(view, Selection(from_ns=0, to_ns=view.duration_ns + 1), tmp_path / "cut.pcapng")
    assert b"X-Nothing: 0" not in (tmp_path / "cut.pcapng").read_bytes()


def test_rules_that_are_none_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rules").write_text("header X-Ours\nhide everything\n")
    monkeypatch.setenv(secret_rules.VARIABLE, str(tmp_path / "rules"))
    with pytest.raises(InputError, match=r"rules, line 2: .*hide everything.* is no rule"):
        secret_rules.rules()
