"""Links held against a list of who made what."""

import gzip
import json
from pathlib import Path

import click
import polars as pl
import pyarrow as pa
import pytest

from benchmarks.linking.by_truth import HEADS, listed_truth, read_truth, row
from benchmarks.linking.truth import ROOT
from testkit.tables import BASE_NS
from tests.benchmarks.test_linking import HOSTS, connections_of, links
from tests.helpers.exchange_lines import exchanges_of

TEXT = """
    client > proxy     0 10 290 300
    client > proxy     5 15 390 400
    proxy > storage1  50 55 190 200
    proxy > storage2  60 65 250 260
    client > proxy   500 510 590 600
    client > proxy   505 515 690 700
    proxy > storage1 550 555 570 580
"""
SENT = (0, 5, 50, 60, 500, 505, 550)
TX = ("a", "b", "a", "b", "c", "c", "c")


def truth_file(folder: Path, exchanges: pa.Table) -> None:
    rows = [
        {
            "conn": f"{HOSTS[one['client_host']]}:{1000 + one['connection_id']}>{HOSTS[one['server_host']]}:80",
            "client": one["client_host"],
            "server": one["server_host"],
            "tx": tx,
            "req_send_ns": one["request_first_sent_trace_ns"],
            "req_recv_ns": one["request_first_received_trace_ns"] + 100,
            "rsp_send_ns": one["response_first_sent_trace_ns"],
        }
        for one, tx in zip(exchanges.to_pylist(), TX, strict=True)
    ]
    (folder / "truth_http.json.gz").write_bytes(gzip.compress(json.dumps(rows).encode()))


def test_the_parent_is_the_open_exchange_of_the_same_request_at_the_caller(tmp_path: Path) -> None:
    exchanges = exchanges_of(TEXT)
    assert exchanges["request_first_sent_trace_ns"].to_pylist() == [BASE_NS + 1_000 * at for at in SENT]
    truth_file(tmp_path, exchanges)
    truth = listed_truth(exchanges, connections_of(exchanges), read_truth(tmp_path))
    line_of = dict(truth.exchanges.select("exchange_id", "line").iter_rows())
    assert line_of == {number: number - 1 for number in range(1, 8)}
    found = dict(truth.lines.select("line", "parent").iter_rows())
    assert found == {0: ROOT, 1: ROOT, 2: 0, 3: 1, 4: ROOT, 5: ROOT, 6: None}  # of the last, two may be the parent


def test_wrong_links_that_are_sure_are_counted(tmp_path: Path) -> None:
    exchanges = exchanges_of(TEXT)
    truth_file(tmp_path, exchanges)
    truth = listed_truth(exchanges, connections_of(exchanges), read_truth(tmp_path))

    def by_figure(found: pl.DataFrame) -> dict[str, str]:
        return dict(zip(HEADS, row("x", found, truth), strict=True))

    good = by_figure(links((3, 1, 0.99), (4, 2, 0.99), (99, 2, 0.5)))
    assert (good["links"], good["right"], good["sure and wrong"], good["others"]) == ("2", "100.00%", "0", "1 at 0.50")
    bad = by_figure(links((3, 2, 0.99), (4, 2, 0.8)))
    assert (bad["right"], bad["sure"], bad["sure and wrong"]) == ("50.00%", "1", "1")


def test_a_folder_without_a_list_is_refused(tmp_path: Path) -> None:
    with pytest.raises(click.UsageError, match="nothing says"):
        read_truth(tmp_path)
