"""Searching: each kind of word finds what it names and nothing else."""

from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest

from collector.queries import TraceSearch, TraceView, open_trace
from collector.trace.schema import conform
from testkit.synthetic_trace import Recipe, write_synthetic_trace
from testkit.tables import table


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> TraceView:
    folder = tmp_path_factory.mktemp("traces") / "searched"
    write_synthetic_trace(folder, Recipe(uploads_count=5))
    return open_trace(str(folder))


@pytest.fixture(scope="module")
def search(trace: TraceView) -> TraceSearch:
    return TraceSearch(trace)


def requests(search: TraceSearch, query: str) -> list[int]:
    hits = search.hits(query)
    assert not hits.problem
    return hits.requests.tolist()


EVERYONE = [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("cat.jpg", EVERYONE),
        ("CAT.JPG put", EVERYONE),
        ("cat.jpg get", []),
        ("path:/v1/AUTH_test", EVERYONE),
        ("path:PUT", []),
        ("method:put", EVERYONE),
        ("service:swift-proxy", EVERYONE),
        ("host:storage2", EVERYONE),
        ("host:cat", []),
        ("#2", [1]),
        ("req:5", [4]),
        ("#6", []),
        ("201", EVERYONE),
        ("status:404", []),
        ("status:ok", EVERYONE),
        ("status:error", []),
        ("http:put", EVERYONE),
        ("http:get", []),
        ("redis:put", []),
        ("grpc:put", []),
        (">1s", []),
        (">1us <1s", EVERYONE),
        ("10.77.0.11:8080", EVERYONE),
        ("10.77.0.11", EVERYONE),
        ("addr::8080", EVERYONE),
        (":9", []),
        ("10.77.0.1", []),  # no address of anybody, though the beginning of some
        ("no:thing", []),
        ("%", []),  # a text, not a pattern
        (".*", []),
    ],
)
def test_words(search: TraceSearch, query: str, found: list[int]) -> None:
    assert requests(search, query) == found


def test_a_transaction_id_and_a_connection_find_their_request(trace: TraceView, search: TraceSearch) -> None:
    exchanges = pq.read_table(f"{trace.url}/exchanges.parquet")
    roots = exchanges.slice(0, 1).to_pylist()[0]
    number = trace.request_of(roots["transaction_id"])
    assert requests(search, roots["transaction_id"].upper()) == [number]
    assert requests(search, f"tx:{roots['transaction_id'][2:]}") == [number]
    assert requests(search, f"conn:{roots['connection_id']}") == [number]


def test_a_hit_is_where_its_request_is(trace: TraceView, search: TraceSearch) -> None:
    hit = search.hit(search.hits("#4"), 0)
    request = trace.request(3)
    assert (hit.request, hit.from_ns, hit.to_ns, hit.text) == (3, request.start_ns, request.end_ns, request.title)


def test_a_connection_of_no_request_is_found_after_the_requests(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("traces") / "silent"
    write_synthetic_trace(folder, Recipe(uploads_count=2))
    for name in ("exchanges", "spans"):  # the second upload's requests are not known
        path = folder / f"{name}.parquet"
        rows = pq.read_table(path)
        pq.write_table(rows.slice(0, rows.num_rows // 2), path)
    trace = open_trace(str(folder))
    hits = TraceSearch(trace).hits("10.77.0.11")
    assert hits.requests.tolist() == [0]
    assert len(hits.connections) > 0
    hit = TraceSearch(trace).hit(hits, 1)
    assert hit.request is None
    assert 0 <= hit.from_ns < hit.to_ns <= trace.duration_ns
    assert f"connection {hits.connections[0]}" in hit.text


def with_streams(folder: Path, *rows: dict[str, object]) -> TraceView:
    """A trace whose connections 1, 2, … are no requests but these streams."""
    write_synthetic_trace(folder, Recipe(uploads_count=2))
    for name in ("exchanges", "spans"):
        path = folder / f"{name}.parquet"
        pq.write_table(pq.read_table(path).slice(0, 0), path)
    start_ns = open_trace(str(folder)).start_ns
    usual = {"to_client_count": 3, "to_server_count": 1, "begin_trace_ns": start_ns, "end_trace_ns": start_ns + 5000}
    numbered = [{**usual, "connection_id": number, **row} for number, row in enumerate(rows, 1)]
    pq.write_table(table("streams", numbered), folder / "streams.parquet")
    return open_trace(str(folder))


MQTT = {"client_host": "sensor", "server_host": "hub", "service": "mosquitto", "protocol": "mqtt", "reason": "mqtt"}
PUSHED = {"client_host": "browser", "server_host": "web", "service": "nginx", "protocol": "http/1.1"}


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("mosquitto", [0]),
        ("host:web", [1]),
        ("service:NGINX", [1]),
        ("stream:mqtt", [0]),
        ("stream:websocket", [1]),
        ("stream:nginx", []),  # a service is no kind
        ("hub stream:mqtt", [0]),
        ("web stream:mqtt", []),
        ("conn:2", [1]),
        ("path:/a", []),
        (">1us", []),
    ],
)
def test_streams_are_found_by_host_service_and_kind(tmp_path: Path, query: str, found: list[int]) -> None:
    socket = {**PUSHED, "reason": "upgraded", "evidence": "WebSocket"}
    trace = with_streams(tmp_path / "t", {**MQTT, "evidence": "MQTT"}, socket)
    hits = TraceSearch(trace).hits(query)
    assert (hits.requests.tolist(), hits.streams.tolist(), hits.problem) == ([], found, "")


def test_a_stream_is_a_hit_in_place_of_its_connection(tmp_path: Path) -> None:
    unseen = {**PUSHED, "evidence": "WebSocket", "begin_trace_ns": None, "end_trace_ns": None}
    trace = with_streams(tmp_path / "t", {**MQTT, "evidence": "MQTT"}, unseen)
    search = TraceSearch(trace)
    hits = search.hits("conn:1")
    assert (hits.count, hits.connections.tolist()) == (1, [])
    hit = search.hit(hits, 0)
    assert (hit.request, hit.from_ns, hit.to_ns) == (None, 0, 5000)
    assert hit.text == "stream (MQTT) from sensor to mosquitto on hub, 4 messages, connection 1"
    without_times = search.hit(search.hits("stream:websocket"), 0)
    assert 0 <= without_times.from_ns < without_times.to_ns <= trace.duration_ns
    assert search.hits("10.77.0.11").connections.tolist()  # of neither: after the streams


@pytest.mark.parametrize("query", ["", "   ", ">soon", "<5", "#x", "conn:abc", "req:", "addr:cat", "status:fine"])
def test_what_cannot_be_searched_for_is_said(search: TraceSearch, query: str) -> None:
    hits = search.hits(query)
    assert hits.count == 0
    assert bool(hits.problem) == (query != "#x")  # which is a text


def test_requests_of_s3_are_found_by_operation_key_and_upload(tmp_path: Path) -> None:
    write_synthetic_trace(tmp_path / "trace", Recipe(uploads_count=3))
    file = tmp_path / "trace" / "exchanges.parquet"
    rows = pl.read_parquet(file)
    roots = pl.read_parquet(tmp_path / "trace" / "spans.parquet").filter(pl.col("depth") == 0)["span_id"].sort()[1:]
    is_part = pl.col("exchange_id").is_in(roots.implode())
    values = {"operation": "UploadPart", "bucket": "photos", "object_key": "a b", "upload": "2~x", "part": 7}
    parts = {name: pl.when(is_part).then(pl.lit(value)) for name, value in values.items()}
    pq.write_table(conform("exchanges", rows.with_columns(**parts).to_arrow()), file)
    trace = open_trace(str(tmp_path / "trace"))
    for query in ("upload:2~x", "s3:uploadpart", "s3:photos", "s3:photos upload:2~x", "2~x"):
        assert requests(TraceSearch(trace), query) == [1, 2], query
    assert requests(TraceSearch(trace), "s3:getobject") == []
    assert [trace.request(number).title for number in (1, 2)] == ["UploadPart 7 of photos/a b"] * 2
    assert trace.request(0).title.startswith("PUT /")
