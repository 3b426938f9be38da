"""The routes: what they send is what is in the tables, at every zoom."""

import json
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from flask.testing import FlaskClient

from collector.queries import ArrowClass, TraceView, open_trace
from testkit.synthetic_trace import Recipe, write_synthetic_trace
from tests.helpers.binary_messages import Message, decode
from tests.helpers.script_traces import write_script_trace
from viewer import narrowing
from viewer.access import Access
from viewer.app import create_app
from viewer.windows import MOST_ARROWS


def client_of(trace: TraceView, access: Access | None = None) -> FlaskClient:
    """Asks the application without a network."""
    return create_app(trace, access).server.test_client()


def window(client: FlaskClient, from_ns: int, to_ns: int) -> Message:
    response = client.get(f"/api/window?from={from_ns}&to={to_ns}", base_url="http://localhost")
    assert response.status_code == 200, response.text
    assert len(response.data) <= 500_000
    return decode(response.data)


@pytest.fixture(scope="module")
def small(small_trace: TraceView) -> FlaskClient:
    return client_of(small_trace)


@pytest.fixture(scope="module")
def large(large_trace: TraceView) -> FlaskClient:
    return client_of(large_trace)


def test_the_whole_of_a_small_trace_is_sent_as_arrows(small: FlaskClient, small_trace: TraceView) -> None:
    message = window(small, 0, small_trace.duration_ns)
    assert message.mode == "arrows"
    assert message.columns["number"].tolist() == list(range(small_trace.summary.hops_count))


def test_arrow_ends_are_exact_to_the_nanosecond(small: FlaskClient, small_trace: TraceView) -> None:
    message = window(small, 0, small_trace.duration_ns)
    hops = pq.read_table(f"{small_trace.url}/hops.parquet")
    for name, column in (("sent", "send_trace_ns"), ("received", "receive_trace_ns")):
        sent = {int(time) + small_trace.start_ns for time in message.columns[name] if not np.isnan(time)}
        assert sent == set(hops[column].drop_null().to_pylist())
        assert np.isnan(message.columns[name]).sum() == hops[column].null_count


def zooms(duration_ns: int) -> Iterator[tuple[int, int]]:
    """Windows that tile the trace, from all of it to a 4096th."""
    for depth in range(0, 13, 3):
        edges = np.linspace(0, duration_ns + 1, 2**depth + 1).astype(int).tolist()
        yield from pairwise(edges)


def test_counts_are_conserved_at_every_zoom(large: FlaskClient, large_trace: TraceView) -> None:
    anchors = pq.read_table(f"{large_trace.url}/hops.parquet")["send_trace_ns"].to_numpy() - large_trace.start_ns
    modes = set()
    for from_ns, to_ns in list(zooms(large_trace.duration_ns))[::7]:
        message = window(large, from_ns, to_ns)
        modes.add(message.mode)
        assert message.count == ((anchors >= from_ns) & (anchors < to_ns)).sum()
        if message.mode == "density":
            covered = (anchors >= message.from_ns) & (anchors < message.to_ns)
            assert message.columns["counts"].sum() == covered.sum()
            assert message.from_ns <= from_ns < to_ns <= message.to_ns
    assert modes == {"density", "arrows"}


def test_every_bin_counts_its_own_rows(large: FlaskClient, large_trace: TraceView) -> None:
    table = pq.read_table(f"{large_trace.url}/hops.parquet")
    anchors = table["send_trace_ns"].to_numpy() - large_trace.start_ns
    message = window(large, 0, large_trace.duration_ns)
    bins = np.bincount((anchors - message.from_ns) // message.bin_ns, minlength=message.shape[2])
    assert message.columns["counts"].reshape(message.shape).sum(axis=(0, 1)).tolist() == bins.tolist()
    lost = int((np.array(table["state"].to_pylist()) == "lost").sum())
    assert message.columns["counts"].reshape(message.shape)[:, ArrowClass.LOST].sum() == lost > 0


def test_the_overview_counts_every_hop(large: FlaskClient, large_trace: TraceView) -> None:
    message = decode(large.get("/api/overview", base_url="http://localhost").data)
    assert message.columns["counts"].sum() == large_trace.summary.hops_count > MOST_ARROWS


def test_a_window_holds_exactly_the_arrows_that_overlap_it(large: FlaskClient, large_trace: TraceView) -> None:
    from_ns, to_ns = large_trace.duration_ns // 2, large_trace.duration_ns // 2 + 2_000_000
    message = window(large, from_ns, to_ns)
    table = pq.read_table(f"{large_trace.url}/hops.parquet")
    sent = table["send_trace_ns"].to_numpy() - large_trace.start_ns
    received = table["receive_trace_ns"].to_numpy(zero_copy_only=False) - large_trace.start_ns
    inside = (sent <= message.to_ns) & (received >= message.from_ns)
    both = ~np.isnan(message.columns["received"])
    assert sorted(message.columns["sent"][both].tolist()) == sorted(sent[inside].tolist())


def test_more_arrows_than_a_view_can_show_are_counted(
    small: FlaskClient, small_trace: TraceView, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("viewer.windows.MOST_IN_VIEW", small_trace.summary.hops_count - 1)
    message = window(small, 0, small_trace.duration_ns + 1)
    assert message.mode == "density"
    assert message.columns["counts"].sum() == small_trace.summary.hops_count


def test_the_ledger_of_a_request_is_sent_as_plain_elements(small: FlaskClient, small_trace: TraceView) -> None:
    answer = small.get("/api/requests/1/details", base_url="http://localhost")
    assert "Request #2" in answer.text
    assert "Where its time went" in answer.text
    beyond = small_trace.summary.requests_count
    assert small.get(f"/api/requests/{beyond}/details", base_url="http://localhost").status_code == 404


def test_a_request_sends_its_own_arrows(small: FlaskClient, small_trace: TraceView) -> None:
    message = decode(small.get("/api/requests/1/arrows", base_url="http://localhost").data)
    assert set(message.columns["request"].tolist()) == {1}
    assert len(message.columns["number"]) == small_trace.request(1).hops_count > 0


def test_a_hop_shows_the_packet_at_both_ends(small: FlaskClient) -> None:
    hop = small.get("/api/hops/10", base_url="http://localhost").json
    assert hop is not None
    assert [section["title"] for section in hop["sections"]] == ["", "Packet, as sent → as received"]
    facts = dict(hop["sections"][0]["facts"])
    assert "±" in facts["delay"]
    packet = dict(hop["sections"][1]["facts"])
    assert packet["flags"] == "SYN ACK"  # the same at both ends
    assert packet["frame"] == "2 at storage2/eth0 → 12 at proxy/eth0"


def test_problems_are_stepped_through_in_both_directions(small: FlaskClient, small_trace: TraceView) -> None:
    def walk(which: str, at: int) -> list[int]:
        found: list[int] = []
        while (problem := small.get(f"/api/problems/{which}?at={at}", base_url="http://localhost").json) is not None:
            at = problem["from_ns"]
            found.append(at)
        return found

    forwards = walk("next", 0)
    assert len(forwards) == sum(small_trace.summary.class_counts[3:5]) > 0
    assert walk("previous", small_trace.duration_ns) == forwards[::-1]


def test_a_connections_first_trouble(small: FlaskClient, small_trace: TraceView) -> None:
    hops = [small_trace.hop(number) for number in range(small_trace.summary.hops_count)]
    for connection_id in {hop.connection_id for hop in hops if hop is not None}:
        mine = [hop for hop in hops if hop is not None and hop.connection_id == connection_id]
        bad = [hop.number for hop in mine if hop.state not in ("matched", "outside_window") or hop.attempt > 1]
        answer = small.get(f"/api/connections/{connection_id}/trouble", base_url="http://localhost").json
        assert (answer["hop"] if answer else None) == (bad[0] if bad else None)


@pytest.mark.parametrize(
    "query", ["", "from=1", "from=5&to=5", "from=x&to=9", "from=1&to=99999999999999999", "from=../../etc&to=1"]
)
def test_a_window_that_makes_no_sense_is_refused(small: FlaskClient, query: str) -> None:
    assert small.get(f"/api/window?{query}", base_url="http://localhost").status_code == 400


@pytest.mark.parametrize(
    "path",
    [
        "/api/hops/999999",
        "/api/requests/99/arrows",
        f"/api/connections/{1 << 63}/trouble",
        "/api/hops/..%2f..%2fetc%2fpasswd",
    ],
)
def test_what_is_not_there_is_not_found(small: FlaskClient, path: str) -> None:
    assert small.get(path, base_url="http://localhost").status_code == 404


@pytest.mark.parametrize("name", ["evil.example", "127.0.0.1.evil.example:8765"])
def test_other_names_than_loopbacks_are_refused(small: FlaskClient, name: str) -> None:
    assert small.get("/", base_url=f"http://{name}").status_code == 403


def test_without_the_token_nothing_is_served(small_trace: TraceView) -> None:
    client = client_of(small_trace, Access("secret"))
    assert client.get("/").status_code == 401
    assert client.get("/api/overview").status_code == 401
    assert client.get("/?token=secret").status_code == 401  # in a URL it would be logged
    assert client.post("/token", data={"token": "wrong"}).status_code == 401
    assert client.get("/api/overview", headers={"Authorization": "Bearer secret"}).status_code == 200
    assert client.post("/token", data={"token": "secret"}).status_code == 303  # and a cookie
    assert client.get("/api/overview").status_code == 200


def test_the_page_may_load_nothing_from_elsewhere(small: FlaskClient) -> None:
    policy = small.get("/", base_url="http://localhost").headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "http" not in policy


def test_a_request_of_too_many_arrows_is_counted_whole(
    small: FlaskClient, small_trace: TraceView, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("viewer.windows.MOST_ARROWS", 20)
    message = decode(small.get("/api/requests/1/arrows", base_url="http://localhost").data)
    assert message.mode == "density"
    assert message.columns["counts"].sum() == message.count == small_trace.request(1).hops_count > 20


def test_a_hop_of_a_trace_that_was_made_anew_is_no_wrong_hop(tmp_path: Path) -> None:
    folder = tmp_path / "live"
    write_synthetic_trace(folder, Recipe())
    client = client_of(open_trace(str(folder)))
    file = folder / "trace.json"
    document = json.loads(file.read_text())
    file.write_text(json.dumps(document | {"created_ns": document["created_ns"] + 1}))
    response = client.get("/api/hops/0", base_url="http://localhost")
    assert response.status_code == 409
    assert "open it again" in response.text


def test_a_request_is_found_by_its_transaction_id(small: FlaskClient, small_trace: TraceView) -> None:
    exchanges = pq.read_table(f"{small_trace.url}/exchanges.parquet", columns=["transaction_id"])
    ids = [text for text in dict.fromkeys(exchanges["transaction_id"].to_pylist()) if text]
    found = [small.get(f"/transaction/{text}", base_url="http://localhost") for text in ids]
    assert {response.status_code for response in found} == {303}
    numbers = {int(response.headers["Location"].removeprefix("/#request=")) for response in found}
    assert numbers == set(range(1, small_trace.summary.requests_count + 1))
    for response in found:
        number = int(response.headers["Location"].removeprefix("/#request=")) - 1
        assert small_trace.request_of(ids[found.index(response)]) == number
    assert small.get("/transaction/none", base_url="http://localhost").status_code == 404
    asked = [ids[0], "none", "", ids[-1]]
    answer = small.get("/api/transactions", query_string={"id": asked}, base_url="http://localhost")
    assert answer.json == {"trace": Path(small_trace.url).name, "known": [ids[0], ids[-1]]}
    many = small.get("/api/transactions", query_string={"id": ["x"] * 101}, base_url="http://localhost")
    assert many.status_code == 400


def read_saved(client: FlaskClient, form: str, query: str) -> str:
    with closing(client.get(f"/save/{form}?{query}", base_url="http://localhost")) as response:
        assert response.status_code == 200, response.text
        return response.text


def test_requests_are_saved_for_other_tools(small: FlaskClient, small_trace: TraceView) -> None:
    view, (first, second, _) = f"from=0&to={small_trace.duration_ns}", [small_trace.request(each) for each in range(3)]
    ids = [json.loads(line) for line in read_saved(small, "otlp", "request=2").splitlines()]
    spans = sum(len(each["scopeSpans"][0]["spans"]) for line in ids for each in line["resourceSpans"])
    assert spans == len(small_trace.spans(1))
    assert len(json.loads(read_saved(small, "har", view))["log"]["entries"]) == 3
    assert len(json.loads(read_saved(small, "jaeger", f"{view}&only=not+%232"))["data"]) == 2
    between = f"from={first.end_ns + 1}&to={second.start_ns + 1}"
    assert len(json.loads(read_saved(small, "har", between))["log"]["entries"]) == 1
    assert read_saved(small, "mermaid", view).startswith("sequenceDiagram")
    with closing(small.get(f"/save/perfetto?{view}", base_url="http://localhost")) as response:
        assert b"requests in progress" in response.data
    empty = small.get(f"/save/har?{view}&only=nowhere", base_url="http://localhost")
    assert (empty.status_code, "no request in view" in empty.text) == (409, True)


def test_a_search_that_makes_no_sense_leaves_nothing(small: FlaskClient, small_trace: TraceView) -> None:
    response = small.get(f"/api/window?from=0&to={small_trace.duration_ns}&only=put+(", base_url="http://localhost")
    assert decode(response.data).columns["number"].tolist() == []


def test_slow_stretches_are_where_slow_requests_were(tmp_path: Path) -> None:
    lines = ["client:40000 > proxy:8080", "0 > syn", "50 < syn_ack"]
    for number, took in enumerate([300] * 20 + [9_000] + [300] * 20):
        at, sent, got = 1_000 + 10_000 * number, 100 * number, 50 * number
        lines += [f"{at} > {sent}:{sent + 100} GET /a", f"{at + took} < {got}:{got + 50} 200"]
    write_script_trace(str(tmp_path / "t"), "\n".join(lines))
    trace = open_trace(str(tmp_path / "t"))
    answer = client_of(trace).get("/api/slowness", base_url="http://localhost").json
    slow = trace.request(20)
    bins = [at for at, ratio in enumerate(answer["ratio"]) if ratio > 5]
    assert bins[0] == slow.start_ns // answer["bin"]
    assert bins[-1] == slow.end_ns // answer["bin"]
    assert max(answer["ratio"]) == pytest.approx(27, rel=0.1)


def test_too_many_packets_are_not_shown_alone(small_trace: TraceView, monkeypatch: pytest.MonkeyPatch) -> None:
    few = small_trace.packets_count(np.array([0]))
    assert few == small_trace.request(0).hops_count
    monkeypatch.setattr(narrowing, "MOST_ALONE", few)
    client, view = client_of(small_trace), f"from=0&to={small_trace.duration_ns}"
    for query, shown in (("%231", few), ("cat", 0)):
        answer = client.get(f"/api/search?q={query}", base_url="http://localhost").json
        assert bool(answer["alone"]) == (shown == 0)
        response = client.get(f"/api/window?{view}&only={query}", base_url="http://localhost")
        assert len(decode(response.data).columns["number"]) == shown


def test_bands_are_of_the_rows_that_are_asked_for(large: FlaskClient, large_trace: TraceView) -> None:
    view = f"from=0&to={large_trace.duration_ns}"
    message = decode(large.get(f"/api/bands?{view}&lanes=0,1,2.3-7", base_url="http://localhost").data)
    requests = message.columns["requests"].reshape(3, -1)
    assert message.columns["served"].tolist() == [0, 1, 1]
    assert requests[0].max() == 0 < requests[1].max() < requests[2].max()
    exact = large.get(f"/api/bands/at?{view}&lanes=2.3-7", base_url="http://localhost").json
    assert exact["requests"] == 3 * large_trace.summary.roots_count
    for query in ("", "&lanes=x", "&lanes=1,1"):
        assert large.get(f"/api/bands?{view}{query}", base_url="http://localhost").status_code == 400


def test_a_trace_without_requests_has_no_bands(empty_trace: TraceView) -> None:
    client = client_of(empty_trace)
    for path in ("/api/bands", "/api/bands/at"):
        assert client.get(f"{path}?from=0&to=1&lanes=0", base_url="http://localhost").status_code == 404
