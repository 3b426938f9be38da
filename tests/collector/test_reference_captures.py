"""Exchanges, times and links against independent truth, on captures of a real Swift, MinIO and Ceph that are kept
outside the project.

Runs where the environment variable TWINTAP_REFERENCE_CAPTURES names their folder. Each has `<host>.pcap.gz` (and
`<host>_lo.pcap.gz`) and `truth_http.json`: every exchange between hosts, with its transaction id and the stamps of its
first packets. The heads are cut before any transaction id, so links are inferred from timing alone; then once more
with the ids of the truth.
"""

import gzip
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from collector.analysis import HostSource, analyse
from collector.requests.spans import link
from collector.trace.reading import Trace
from collector.trace.schema import conform

VARIABLE = "TWINTAP_REFERENCE_CAPTURES"
FOLDER = Path(os.environ.get(VARIABLE, ""))
NAMES = sorted(path.name for path in FOLDER.iterdir()) if VARIABLE in os.environ else []
CONCURRENT = ("swift-loopback", "swift-mixed-background", "minio-mixed-200")
"""Taken with several requests at once, where timing alone cannot show which is whose."""
CALLERS = {"swift-container": "swift-object", "swift-account": "swift-container", "minio": "minio"}
"""Which service of a storage host, or of a node of MinIO, makes requests to which service."""
STORAGE = ("storage", "minio")
UNNAMED = ("radosgw",)
"""Services that no message shows where heads are cut: `host:port` then."""
ROUNDING_NS = 1

pytestmark = pytest.mark.skipif(VARIABLE not in os.environ, reason=f"{VARIABLE} names no folder of captures")


@dataclass(frozen=True)
class Case:
    """A capture analysed, and what is true of it: rows of the truth by `exchange_id`."""

    name: str
    url: str
    exchanges: dict[int, dict[str, Any]]
    truth: dict[int, dict[str, Any]]
    unclaimed: list[dict[str, Any]]


@pytest.fixture(scope="module", params=NAMES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    folder = FOLDER / str(request.param)
    url = str(tmp_path_factory.mktemp("reference") / folder.name)
    files = sorted(folder.glob("*.pcap.gz"))
    analyse([HostSource(file.name.split(".")[0].removesuffix("_lo"), (file,)) for file in files], url)
    exchanges = {row["exchange_id"]: row for row in Trace(url).read("exchanges").to_pylist()}
    rows = _truth(folder)
    truth, count = {}, dict[str, int]()
    names = _connection_names(url)
    for number, row in sorted(exchanges.items()):
        name = names[row["connection_id"]]
        count[name] = count.get(name, 0) + 1
        if (name, count[name]) in rows:
            truth[number] = rows.pop((name, count[name]))
    yield Case(folder.name, url, exchanges, truth, list(rows.values()))


def _truth(folder: Path) -> dict[tuple[str, int], dict[str, Any]]:
    plain = folder / "truth_http.json"
    text = plain.read_bytes() if plain.exists() else gzip.decompress((folder / "truth_http.json.gz").read_bytes())
    return {(row["conn"], row["nth"]): row for row in json.loads(text)}


def _connection_names(url: str) -> dict[int, str]:
    return {
        row["connection_id"]: "{client_addr}:{client_port}>{server_addr}:{server_port}".format(**row)
        for row in Trace(url).read("connections").to_pylist()
    }


def test_every_exchange_is_found_once_with_its_head(case: Case) -> None:
    assert case.unclaimed == []
    for number, truth in case.truth.items():
        row = case.exchanges[number]
        assert (row["method"], row["status"]) == (truth["method"], truth["status"])
        assert row["service"] == truth["service"] or truth["service"] in UNNAMED
        assert (row["client_host"], row["server_host"]) == (truth["client"], truth["server"])
        assert row["complete"]
        assert truth["path"].startswith(row["target"].split("?")[0]) or row["target"].startswith(truth["path"])


def test_times_are_those_of_the_packets(case: Case) -> None:
    clocks = {row["host"]: row for row in Trace(case.url).read("clocks").to_pylist()}

    def trace_ns(host: str, host_ns: int) -> int:
        clock = clocks[host]
        return host_ns - clock["offset_ns"] - round(clock["skew_ppb"] * (host_ns - clock["from_host_ns"]) / 1e9)

    edges = {"request_first_sent": ("client", "req_send_ns"), "request_first_received": ("server", "req_recv_ns")}
    edges |= {"response_first_sent": ("server", "rsp_send_ns"), "response_first_received": ("client", "rsp_recv_ns")}
    for number, truth in case.truth.items():
        for edge, (end, stamp) in edges.items():
            if truth[stamp] is None:  # at the capture's edge
                continue
            expected = trace_ns(truth[end], truth[stamp])
            assert abs(case.exchanges[number][f"{edge}_trace_ns"] - expected) <= ROUNDING_NS, (number, edge)


def test_every_link_is_right_with_ids(case: Case) -> None:
    rows = list(case.exchanges.values())
    shown = [row | {"transaction_id": case.truth.get(row["exchange_id"], {}).get("tx")} for row in rows]
    spans = link(conform("exchanges", pa.Table.from_pylist(shown)))
    assert _wrong_links(case, spans) == []


def test_every_link_is_right_without_ids_one_request_at_a_time(case: Case) -> None:
    if case.name in CONCURRENT:
        pytest.skip("several requests at once")
    assert _wrong_links(case, Trace(case.url).read("spans")) == []


def _wrong_links(case: Case, spans: pa.Table) -> list[tuple[int, int | None]]:
    wrong = []
    for span in spans.to_pylist():
        number, parent = span["span_id"], span["parent_span_id"]
        if number in case.truth and _is_judged(case, number) and parent not in _possible_parents(case, number):
            wrong.append((number, parent))
    return wrong


def _is_judged(case: Case, number: int) -> bool:
    """Whether the truth knows whose it is: a daemon's request has no id, and its cut head does not name the daemon."""
    return case.truth[number]["tx"] is not None


def _possible_parents(case: Case, number: int) -> set[int | None]:
    """Exchanges of the same transaction served by the child's client, by a service that makes such requests."""
    child = case.truth[number]
    from_storage = child["client"].startswith(STORAGE)
    callers = {CALLERS.get(child["service"])} if from_storage else {"swift-proxy"}
    possible = {
        other
        for other, row in case.truth.items()
        if (row["tx"], row["server"]) == (child["tx"], child["client"]) and row["service"] in callers
    }
    return set(possible) or {None}


def test_nothing_is_alarming_but_the_losses(case: Case) -> None:
    findings = Trace(case.url).read("findings").to_pylist()
    expected = {"packet_loss"} if case.name.endswith("-loss") else set()
    assert {finding["kind"] for finding in findings if finding["severity"] in ("warning", "error")} == expected
