"""The collector's door, over HTTP: durable before acknowledged, each segment once, nothing outside its directory."""

import asyncio
import errno
import hashlib
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import pytest

from collector.analysis import analyse
from collector.decode.host_capture import HostSource
from collector.service import ingest
from collector.service.app import MOST_ANALYSES, create_app
from collector.service.live import Counters
from collector.service.settings import CollectorSettings
from collector.trace.model import HostInfo, TraceInfo
from tests.helpers.answering import connections_to
from tests.helpers.app_client import AppClient
from tests.helpers.script_traces import write_script_trace
from tracer import _capture
from tracer.segments import segment_name
from tracer.shipping import PACKED, CollectorClient, Shipper
from tracer.spool import Destination, SpoolLimits, open_spools

INCARNATION, LATER = "20261125T225248-0a1b2c", "20261125T225300-ffffff"
SEGMENT = b"\n\r\r\n" + b"a segment" * 100


def put(
    client: AppClient, number: int, content: bytes = SEGMENT, sha256: str | None = None, **place: str
) -> httpx.Response:
    return client.put(
        f"{path_of(**place)}/segments/{number}",
        content=content,
        headers={"X-Content-SHA256": sha256 or hashlib.sha256(content).hexdigest()},
    )


def path_of(session: str = "s1", host: str = "proxy", incarnation: str = INCARNATION) -> str:
    return f"/api/sessions/{session}/hosts/{host}/incarnations/{incarnation}"


def file_of(number: int, incarnation: str = INCARNATION) -> str:
    return f"sessions/s1/proxy/{incarnation}/proxy-{incarnation}-{number:06d}.pcapng"


def files(data: Path) -> list[str]:
    return sorted(str(path.relative_to(data)) for path in data.rglob("*") if path.is_file())


@pytest.fixture
def client(tmp_path: Path) -> AppClient:
    return AppClient(create_app(CollectorSettings(tmp_path, segment_limit_bytes=10_000), no_analysis))


def no_analysis(sources: Sequence[HostSource], trace: str, counters: Counters) -> TraceInfo:
    raise AssertionError("not asked for")


def test_a_segment_is_stored_as_it_was_sent(client: AppClient, tmp_path: Path) -> None:
    answer = put(client, 7)
    assert answer.status_code == 201
    assert answer.json() == {"outcome": "stored", "acknowledged": True}
    assert files(tmp_path) == [file_of(7)]
    assert (tmp_path / file_of(7)).read_bytes() == SEGMENT


def test_a_segment_sent_again_is_taken_once(client: AppClient, tmp_path: Path) -> None:
    put(client, 1)
    again = put(client, 1)
    assert again.status_code == 200
    assert again.json() == {"outcome": "known", "acknowledged": True}
    assert len(files(tmp_path)) == 1


def test_a_packed_segment_is_stored_as_pcapng(client: AppClient, tmp_path: Path) -> None:
    headers = {"X-Content-SHA256": hashlib.sha256(SEGMENT).hexdigest(), "Content-Type": PACKED}
    assert PACKED in client.get("/api/health").headers["Accept"]
    for code in (201, 200):
        answer = client.put(f"{path_of()}/segments/7", content=_capture.pack(SEGMENT), headers=headers)
        assert (answer.status_code, answer.json()["acknowledged"]) == (code, True)
    assert files(tmp_path) == [file_of(7)]
    assert (tmp_path / file_of(7)).read_bytes() == SEGMENT


@pytest.mark.parametrize(
    ("body", "of", "code"),
    [
        (_capture.pack(SEGMENT), SEGMENT + b"other", 422),
        (_capture.pack(SEGMENT)[:-1], SEGMENT, 422),
        (SEGMENT, SEGMENT, 422),
        (_capture.pack(b"a text"), b"a text", 415),
        (_capture.pack(SEGMENT + bytes(10_000)), SEGMENT + bytes(10_000), 413),
    ],
)
def test_what_is_no_packed_segment_leaves_nothing(
    client: AppClient, tmp_path: Path, body: bytes, of: bytes, code: int
) -> None:
    headers = {"X-Content-SHA256": hashlib.sha256(of).hexdigest(), "Content-Type": PACKED}
    assert client.put(f"{path_of()}/segments/1", content=body, headers=headers).status_code == code
    assert files(tmp_path) == []


def test_another_segment_under_the_same_number_is_refused(client: AppClient, tmp_path: Path) -> None:
    put(client, 1)
    other = put(client, 1, SEGMENT + b"other")
    assert other.status_code == 409
    assert not other.json()["acknowledged"]
    assert (tmp_path / file_of(1)).read_bytes() == SEGMENT


@pytest.mark.parametrize(
    ("content", "sha256", "code"),
    [
        (SEGMENT, hashlib.sha256(b"other").hexdigest(), 422),
        (SEGMENT[:-1], hashlib.sha256(SEGMENT).hexdigest(), 422),
        (SEGMENT, "no hash", 400),
        (SEGMENT, "A" * 64, 400),
        (b"a text", None, 415),
        (b"", None, 415),
        (SEGMENT + bytes(10_000), None, 413),
    ],
)
def test_what_is_not_good_leaves_nothing(
    client: AppClient, tmp_path: Path, content: bytes, sha256: str | None, code: int
) -> None:
    assert put(client, 1, content, sha256).status_code == code
    assert files(tmp_path) == []


@pytest.mark.parametrize(
    "name", ["..", ".", "%2e%2e", "..%2f..%2fetc", "a%2fb", "a%5cb", "%00", ".hidden", "a%0a", "é", "x" * 65]
)
def test_names_that_could_lead_elsewhere_are_refused(client: AppClient, tmp_path: Path, name: str) -> None:
    data = tmp_path / "inner"
    client.app.state.settings = CollectorSettings(data)
    for place in ({"session": name}, {"host": name}, {"incarnation": name}):
        assert put(client, 1, **place).status_code in (400, 404, 405)
    assert client.get(f"/api/sessions/{name}").status_code in (200, 400, 404)  # '.' is the list
    assert client.post(f"/api/sessions/{name}/analyse").status_code in (400, 404, 405)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", ["0", "-1", "1000000000", "1.5", "x"])
def test_numbers_that_cannot_be_one_are_refused(client: AppClient, tmp_path: Path, number: str) -> None:
    headers = {"X-Content-SHA256": hashlib.sha256(SEGMENT).hexdigest()}
    answer = client.put(f"{path_of()}/segments/{number}", content=SEGMENT, headers=headers)
    assert answer.status_code in (400, 422)
    assert files(tmp_path) == []


def test_status_shows_what_is_here_and_what_is_missing(client: AppClient) -> None:
    assert client.get("/api/sessions").json() == []
    put(client, 1)
    put(client, 4)
    put(client, 2, incarnation=LATER)
    put(client, 1, host="client")
    expected = {
        "host": "proxy",
        "segments_count": 3,
        "bytes_count": 3 * len(SEGMENT),
        "expired_count": 0,
        "missing_count": 3,
        "closed": False,
        "incarnations": [
            {
                "incarnation": INCARNATION,
                "segments_count": 2,
                "bytes_count": 2 * len(SEGMENT),
                "last_number": 4,
                "expired_count": 0,
                "missing_count": 2,
                "missing": [2, 3],
                "closed": False,
            },
            {
                "incarnation": LATER,
                "segments_count": 1,
                "bytes_count": len(SEGMENT),
                "last_number": 2,
                "expired_count": 0,
                "missing_count": 1,
                "missing": [1],
                "closed": False,
            },
        ],
    }
    status = client.get("/api/sessions/s1").json()
    assert [host["host"] for host in status["hosts"]] == ["client", "proxy"]
    assert status["hosts"][1] == expected
    assert not status["analysed"]
    assert client.get("/api/sessions").json() == [status]
    assert client.get("/api/sessions/unknown").json()["hosts"] == []


def test_a_host_is_closed_when_all_that_was_announced_is_here(client: AppClient) -> None:
    def close(**message: int) -> dict[str, object]:
        answer: dict[str, object] = client.post(f"{path_of()}/close", json=message).json()
        return answer

    put(client, 1)
    assert close(last_number=2)["closed"] is False
    put(client, 2)
    assert client.get("/api/sessions/s1").json()["hosts"][0]["closed"] is True
    put(client, 4)
    assert client.get("/api/sessions/s1").json()["hosts"][0]["closed"] is False, "the host captures again"
    assert close(last_number=4)["closed"] is False
    assert close(last_number=4, lost_count=1)["closed"] is True
    assert close(last_number=999_999_999)["missing_count"] == 999_999_999 - 3, "without listing them all"


def test_an_incarnation_is_closed_by_an_agent_that_knows_of_less_than_is_here(client: AppClient) -> None:
    """What a killed agent stored of its state is some seconds old; the next one closes what that left."""
    for number in (1, 2, 3):
        put(client, number)
    assert client.post(f"{path_of()}/close", json={"last_number": 1}).json()["closed"] is True


def test_a_full_disk_is_507_and_the_next_try_works(
    client: AppClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        answer = put(client, 1)
        assert answer.status_code == 507
        assert "no space left" in answer.json()["detail"]
        assert client.post(f"{path_of()}/close", json={"last_number": 1}).status_code == 507
    assert files(tmp_path) == []
    assert put(client, 1).status_code == 201


def test_what_a_killed_collector_left_is_removed(tmp_path: Path) -> None:
    whole = tmp_path / file_of(2)
    whole.parent.mkdir(parents=True)
    (whole.parent / f".{whole.name}.abcd.incoming").write_bytes(b"half")
    whole.write_bytes(SEGMENT)
    ingest.clean(tmp_path)
    assert files(tmp_path) == [file_of(2)]


def test_nothing_is_done_without_the_token(tmp_path: Path) -> None:
    client = AppClient(create_app(CollectorSettings(tmp_path, token="right"), no_analysis))
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "right"}, {"Authorization": "Bearer "}):
        client.headers = headers
        assert put(client, 1).status_code == 401
        assert client.get("/api/health").status_code == 401
        assert client.get("/api/sessions").status_code == 401
        assert client.post("/api/sessions/s1/analyse").status_code == 401
    assert files(tmp_path) == []
    assert client.get("/api/sessions/s1/quality").status_code == 401
    client.headers = {"Authorization": "Bearer right"}
    assert client.get("/api/health").json() == {"status": "ok"}
    assert put(client, 1).status_code == 201


def test_the_routes_are_described_without_foreign_hosts(client: AppClient) -> None:
    page = client.get("/docs").text
    assert "/api/sessions/{session}/analyse" in page
    assert "http" not in page.replace("</html>", "").split("<table>")[0].replace("openapi.json", "")
    assert "<script" not in page
    assert set(client.get("/openapi.json").json()["paths"]) >= {"/api/health", "/api/sessions"}


def test_analysis_gets_each_hosts_segments_in_order(client: AppClient, tmp_path: Path) -> None:
    seen: list[HostSource] = []

    def analysis(sources: Sequence[HostSource], trace: str, counters: Counters) -> TraceInfo:
        seen.extend(sources)
        assert trace == str(tmp_path / "traces" / "s1")
        proxy = HostInfo("proxy", (), (), (), 9, 8, None, None)
        return TraceInfo(created_ns=1, tool_version="1", hosts=(proxy,))

    assert client.post("/api/sessions/s1/analyse").status_code == 404
    client.app.state.analysis = analysis
    for number in (10, 9, 1):
        put(client, number, SEGMENT + b"%d" % number)
    answer = client.post("/api/sessions/s1/analyse")
    assert answer.json() == {"trace": str(tmp_path / "traces" / "s1"), "hosts": ["proxy"], "events_count": 8}
    (source,) = seen
    assert source.host == "proxy"
    assert [path.name for path in source.files] == [Path(file_of(number)).name for number in (1, 9, 10)]


def test_analysis_of_what_is_no_capture_is_reported(client: AppClient, tmp_path: Path) -> None:
    client.app.state.analysis = lambda sources, trace, _counters: analyse(sources, trace)
    put(client, 1)
    answer = client.post("/api/sessions/s1/analyse")
    assert answer.status_code == 400
    assert not (tmp_path / "traces" / "s1").exists()


def test_a_stage_that_raises_is_one_line_and_the_next_analysis_runs(
    client: AppClient, caplog: pytest.LogCaptureFixture
) -> None:
    def fail_in_a_stage(sources: Sequence[HostSource], trace: str, counters: Counters) -> TraceInfo:
        raise IndexError("a stage")

    put(client, 1)
    client.app.state.analysis = fail_in_a_stage
    for _ in range(2):
        answer = client.post("/api/sessions/s1/analyse")
        assert answer.status_code == 500
        assert answer.json()["detail"].startswith("the analysis of session s1 failed: IndexError: a stage (")
    logged = [record.getMessage() for record in caplog.records if record.name == "twintap.collector"]
    assert logged == [answer.json()["detail"]] * 2


def test_sessions_are_analysed_beside_each_other_and_none_twice_at_a_time(client: AppClient, tmp_path: Path) -> None:
    running, most, lock, go_on = set[str](), [0], threading.Lock(), threading.Event()

    def analysis(sources: Sequence[HostSource], trace: str, counters: Counters) -> TraceInfo:
        with lock:
            running.add(trace)
            most[0] = max(most[0], len(running))
        assert go_on.wait(60)
        with lock:
            running.remove(trace)
        return TraceInfo(created_ns=0, tool_version="", hosts=())

    names = [f"s{number}" for number in range(2 * MOST_ANALYSES + 1)]
    for name in names:
        put(client, 1, session=name)
    client.app.state.analysis = analysis

    async def ask_all() -> tuple[int, list[int]]:
        transport = httpx.ASGITransport(client.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://testserver") as asking:
            asked = [asyncio.create_task(asking.post(f"/api/sessions/{name}/analyse")) for name in names]
            async with asyncio.timeout(50):
                while len(client.app.state.analysing) < len(names) or len(running) < MOST_ANALYSES:
                    await asyncio.sleep(0.01)
                again = await asking.post(f"/api/sessions/{names[-1]}/analyse")
            go_on.set()
            return again.status_code, [(await task).status_code for task in asked]

    assert asyncio.run(ask_all()) == (409, [200] * len(names))
    assert most == [MOST_ANALYSES]
    assert client.post(f"/api/sessions/{names[-1]}/analyse").status_code == 200, "nothing is left behind"


@pytest.mark.parametrize("path", ["/api/sessions", "/api/sessions/s1", "/api/sessions/s1/quality"])
def test_what_the_system_refuses_is_one_line(client: AppClient, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    def refuse_to_list(_path: Path) -> Iterator[Path]:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    put(client, 1)
    monkeypatch.setattr(Path, "iterdir", refuse_to_list)
    answer = client.get(path)
    assert answer.status_code == 503
    assert answer.json() == {"detail": "the collector cannot read its data: Too many open files; try again later"}


def test_quality_of_an_analysed_session(client: AppClient, tmp_path: Path) -> None:
    script = """
        client:40000 > proxy:8080
          0 > 0:100 lost
        200 > 0:100 #2
        client:40001 > proxy:8080
          0 > 0:100 unseen
    """
    assert client.get("/api/sessions/s1/quality").status_code == 404
    assert "POST /api/sessions/s1/analyse" in client.get("/api/sessions/s1/quality").json()["detail"]
    write_script_trace(str(tmp_path / "traces" / "s1"), script)
    answer = client.get("/api/sessions/s1/quality").json()
    assert answer["total"]["hops_count"] == 3
    (pair,) = answer["host_pairs"]
    assert (pair["send_host"], pair["receive_host"], pair["connections_count"]) == ("client", "proxy", 2)
    assert (pair["counts"]["lost_count"], pair["counts"]["capture_dropped_count"]) == (1, 1)
    assert [each["client_port"] for each in answer["worst_connections"]] == [40001, 40000]
    least = client.get("/api/sessions/s1/quality?connections=1").json()
    assert [each["client_port"] for each in least["worst_connections"]] == [40001]
    assert least["imperfect_connections_count"] == 2
    assert client.get("/api/sessions/s1/quality?connections=1001").status_code == 422
    assert client.get("/api/sessions/..%2fs1/quality").status_code in (400, 404)


def test_quality_is_described(client: AppClient) -> None:
    document = client.get("/openapi.json").json()
    described = document["paths"]["/api/sessions/{session}/quality"]["get"]["responses"]["200"]["content"]
    assert described["application/json"]["schema"]["$ref"].endswith("/Pairing")
    counts = document["components"]["schemas"]["Counts"]["properties"]
    assert {"matched_count", "split_count", "retransmitted_count", "early_count", "ambiguous_count"} <= counts.keys()


def test_an_agent_and_a_collector_lose_nothing_while_the_collectors_disk_is_full(
    client: AppClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forward(request: httpx.Request) -> httpx.Response:
        answer = client.request(
            request.method, request.url.raw_path.decode(), content=request.read(), headers=request.headers
        )
        return httpx.Response(answer.status_code, content=answer.content, headers=answer.headers)

    spools = open_spools(Destination("http://testserver", "s1", "", tmp_path / "spool", 1 << 20), "proxy")
    agent = CollectorClient("http://testserver", connect=connections_to(forward))
    notices: list[str] = []
    now = [0.0]
    limits = SpoolLimits(1 << 20)
    shipper = Shipper(agent, spools, limits, lambda line, *_, **__: notices.append(line), lambda: now[0])
    link, links = os.link, []

    def sometimes_full(source: Path, target: Path) -> None:
        links.append(target)
        if len(links) % 2:
            raise OSError(errno.ENOSPC, "full")
        link(source, target)

    monkeypatch.setattr(os, "link", sometimes_full)
    for number in range(1, 5):
        (spools[-1].folder / segment_name(spools[-1].stem, number)).write_bytes(SEGMENT + b"%d" % number)
    while spools[-1].waiting():
        now[0] += 100
        shipper.step()
    assert shipper.close()
    assert client.get("/api/sessions/s1").json()["hosts"][0]["closed"] is True
    for number in range(1, 5):
        stored = tmp_path / file_of(number, spools[-1].incarnation)
        assert stored.read_bytes() == SEGMENT + b"%d" % number
    assert notices[0].startswith("the collector at http://testserver cannot take segments now (507: no space left")
