"""The scoring of links, held against cases whose answer is plain."""

import json
from pathlib import Path

import click
import polars as pl
import pyarrow as pa
import pytest

from benchmarks.linking import baselines, by_id
from benchmarks.linking.payload import header_len, hide_ids, strip_folder
from benchmarks.linking.scoring import score_ledgers, score_links, score_whole
from benchmarks.linking.truth import ROOT, Truth, find_truth, read_logs
from collector.analysis import analyse
from collector.decode.sources import host_sources
from collector.requests.spans import link
from collector.trace.reading import Trace
from testkit.tables import table
from tests.helpers.exchange_lines import at_us, exchanges_of

CAPTURES = Path(__file__).parent.parent.parent / "captures"
HOSTS = {"client": "10.0.0.1", "proxy": "10.0.0.2", "storage1": "10.0.0.3", "storage2": "10.0.0.4"}

TWO_AT_ONCE = """
    client > proxy     0 10 290 300 tx=a
    client > proxy     5 15 390 400 tx=b
    proxy > storage1  50 55 190 200 tx=a
    proxy > storage2  60 65 250 260 tx=b
"""


def connections_of(exchanges: pa.Table) -> pa.Table:
    rows = [
        {
            "connection_id": row["connection_id"],
            "client_addr": HOSTS[row["client_host"]],
            "client_port": 1000 + row["connection_id"],
            "server_addr": HOSTS[row["server_host"]],
            "server_port": 80,
            "last_host_ns": row["response_last_received_trace_ns"],
        }
        for row in exchanges.to_pylist()
    ]
    return table("connections", rows)


def truth_of(exchanges: pa.Table, folder: Path) -> Truth:
    """Every exchange logged by its server, from 1 µs after it came."""
    for row in exchanges.to_pylist():
        log = folder / row["server_host"] / "server.jsonl"
        log.parent.mkdir(exist_ok=True)
        line = {
            "transaction_id": row["transaction_id"],
            "start_ns": row["request_first_received_trace_ns"] + 1_000,
            "end_ns": row["response_last_sent_trace_ns"],
            "peer": f"{HOSTS[row['client_host']]}:{1000 + row['connection_id']}",
            "local": f"{HOSTS[row['server_host']]}:80",
        }
        with log.open("a") as stream:
            stream.write(json.dumps(line) + "\n")
    return find_truth(exchanges, connections_of(exchanges), read_logs(folder))


def links(*rows: tuple[int, int, float]) -> pl.DataFrame:
    return pl.DataFrame(rows, {"exchange_id": pl.Int64, "parent_id": pl.Int64, "confidence": pl.Float64}, orient="row")


def test_links_are_held_against_the_logs(tmp_path: Path) -> None:
    truth = truth_of(exchanges_of(TWO_AT_ONCE), tmp_path)
    right = score_links(links((3, 1, 1.0), (4, 2, 1.0)), truth)
    assert (right.accuracy, right.calibration_error, right.roots_count) == (1, 0, 2)
    half = score_links(links((3, 1, 0.5), (4, 1, 0.5)), truth)
    assert (half.accuracy, half.calibration_error) == (0.5, 0)
    boastful = score_links(links((3, 2, 1.0), (4, 1, 1.0)), truth)
    assert (boastful.accuracy, boastful.calibration_error) == (0, 1)
    assert score_links(links(), truth).accuracy == 0
    assert score_links(links((2, 1, 0.1)), truth).roots_linked_count == 1


def test_whole_requests(tmp_path: Path) -> None:
    exchanges = exchanges_of(TWO_AT_ONCE)
    truth, spans = truth_of(exchanges, tmp_path), pl.DataFrame(link(exchanges))
    good = score_whole(spans, pl.DataFrame(exchanges), truth, "client")
    assert (good.complete_count, good.whole_count, good.foreign_count) == (2, 2, 0)
    moved = spans.with_columns(trace_id=pl.when(pl.col("span_id") == 4).then(1).otherwise("trace_id"))
    bad = score_whole(moved, pl.DataFrame(exchanges), truth, "client")
    assert (bad.complete_count, bad.whole_count, bad.foreign_count) == (2, 0, 1)


def test_ledgers_add_up_to_what_the_trace_shows() -> None:
    exchanges = exchanges_of(TWO_AT_ONCE)
    spans = pl.DataFrame(link(exchanges))
    assert score_ledgers(spans, pl.DataFrame(exchanges), [], "client").adding_up_count == 2
    less = spans.with_columns(pl.col("critical_ns") - 1)
    assert score_ledgers(less, pl.DataFrame(exchanges), [], "client").adding_up_count == 0


def test_a_clients_pause_before_its_request_is_in_what_it_measured_and_in_no_ledger() -> None:
    exchanges = exchanges_of("client > proxy 0 10 290 300 tx=a connect=-100 connected=-80")
    spans = pl.DataFrame(link(exchanges))
    assert spans["pause_ns"].to_list() == [80_000]
    assert score_ledgers(spans, pl.DataFrame(exchanges), [], "client").adding_up_count == 1
    without = spans.with_columns(pause_ns=pl.lit(0))
    assert score_ledgers(without, pl.DataFrame(exchanges), [], "client").adding_up_count == 0


def test_baselines_are_right_where_they_can_be() -> None:
    exchanges = exchanges_of(TWO_AT_ONCE)
    by_order = {row[0]: row[1] for row in baselines.fcfs(exchanges).iter_rows()}
    assert by_order == {3: 1, 4: 1}  # one call of a host to a service each: the first that is open
    by_delay = {row[0]: row[1:] for row in baselines.wap5(exchanges).iter_rows()}
    assert {child: parent for child, (parent, _) in by_delay.items()} == {3: 2, 4: 2}  # the latest
    assert all(0.5 < confidence < 0.6 for _, confidence in by_delay.values())


def in_folders(captures: Path, target: Path) -> None:
    """The same captures as agents keep them, each host's in a folder."""
    for file in captures.glob("*.pcapng"):
        (target / file.stem).mkdir(parents=True)
        (target / file.stem / file.name).write_bytes(file.read_bytes())


def test_ids_that_captures_show_are_the_truth_for_links_without(tmp_path: Path) -> None:
    in_folders(CAPTURES / "bench-2-puts", tmp_path / "puts")
    shown = by_id.rows(tmp_path / "puts")
    for hidden in ("ids", "heads"):
        rows = [row[2:] for row in shown if row[1] == hidden]
        services = {service: int(links) for service, links, *_ in rows}
        assert services.pop("all") == sum(services.values()) > 0
        if hidden == "ids":  # without heads nothing shows which software answers
            assert {"swift-object", "swift-container"} <= services.keys()
        right = {service: share for service, _, _, share, *_ in rows}
        assert set(right.values()) == {"100.00%"}


def test_hidden_ids_leave_all_else_of_heads(tmp_path: Path) -> None:
    in_folders(CAPTURES / "bench-2-puts", tmp_path / "puts")
    analyse(host_sources([str(tmp_path / "puts")]), str(tmp_path / "shown"))
    hide_ids(tmp_path / "puts", tmp_path / "silent")
    analyse(host_sources([str(tmp_path / "silent")]), str(tmp_path / "hidden"))
    shown, hidden = (pl.DataFrame(Trace(str(tmp_path / name)).read("exchanges")) for name in ("shown", "hidden"))
    ids = ["transaction_id", "response_transaction_id"]
    assert shown.drop(ids).equals(hidden.drop(ids))
    assert shown["transaction_id"].null_count() < len(shown)
    assert hidden["transaction_id"].null_count() == len(hidden)


def test_captures_without_ids_are_refused(tmp_path: Path) -> None:
    in_folders(CAPTURES / "bench-2-puts", tmp_path / "puts")
    strip_folder(tmp_path / "puts", tmp_path / "bare")
    with pytest.raises(click.UsageError, match="no transaction ids"):
        by_id.rows(tmp_path / "bare")
    with pytest.raises(click.UsageError, match="HOST"):
        by_id.rows(CAPTURES / "bench-2-puts")


def test_truth_by_id_is_of_the_request_that_shows_it_and_of_none_that_shows_none(tmp_path: Path) -> None:
    text = TWO_AT_ONCE + "proxy > storage1 70 75 240 250"
    seen = exchanges_of(text)
    hidden = seen.set_column(
        seen.schema.get_field_index("transaction_id"),
        seen.schema.field("transaction_id"),
        pa.nulls(seen.num_rows, seen.schema.field("transaction_id").type),
    )
    connections = connections_of(seen)
    truth = by_id.truth_by_id(
        {"exchanges": seen, "connections": connections, "spans": link(seen)},
        {"exchanges": hidden, "connections": connections},
    )
    assert dict(truth.lines.select("line", "parent").iter_rows()) == {1: ROOT, 2: ROOT, 3: 1, 4: 2, 5: None}
    wrong = pl.DataFrame({"exchange_id": [3, 4], "parent_id": [2, 2], "confidence": [0.5, 0.5]})
    assert score_links(wrong, truth).right_count == 1


@pytest.mark.parametrize("name", ["bench-2-puts"])
def test_a_stripped_capture_has_the_same_packets_and_no_heads(name: str, tmp_path: Path) -> None:
    in_folders(CAPTURES / name, tmp_path / "whole")
    strip_folder(tmp_path / "whole", tmp_path / "bare")
    for kind in ("whole", "bare"):
        analyse(host_sources([str(tmp_path / kind)]), str(tmp_path / f"{kind}.trace"))
    seen, bare = (
        {each: Trace(str(tmp_path / f"{kind}.trace")).read(each) for each in ("events", "messages")}
        for kind in ("whole", "bare")
    )
    assert seen["messages"].num_rows > 0
    assert bare["messages"].num_rows == 0
    same = [column for column in seen["events"].column_names if column != "captured_len"]
    assert seen["events"].select(same).equals(bare["events"].select(same))


def test_headers_of_other_packets_are_kept_whole() -> None:
    assert header_len(b"\0" * 12 + b"\x08\x06" + b"\0" * 28) == 42  # ARP
    assert at_us("-") is None
