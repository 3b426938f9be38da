"""Streams of real captures of Redis 7, cut to 130 bytes a packet: a subscriber or a worker, and a client's requests.

By Redis's own slow log: 60 commands of the client, 10 of them of 50 ms, beside 20 messages to a subscriber, or 20 jobs
to a worker that waits for each by BLPOP. What is cut to headers alone is known by its shape.
"""

import gzip
import re
import struct
from pathlib import Path

import polars as pl
import pytest

from collector.analysis import AnalysisOptions, analyse
from collector.decode.sources import host_sources
from collector.queries import TraceSearch, open_trace
from collector.reporting.html import make_html
from collector.reporting.report import Report, build_report
from collector.reporting.text import show
from collector.trace.reading import Trace
from collector.trace.schema import ID_STRIDE
from tests.helpers.command_line import run_here
from viewer.pages.address import Address
from viewer.pages.streams import content

CAPTURES = Path(__file__).parents[2] / "golden" / "streams"
HEADERS = 14 + 20 + 32


def report_of(place: Path, captures: list[Path]) -> str:
    trace = str(place / "trace")
    done = run_here("replay", "--quiet", "-o", trace, *captures)
    assert done.returncode == 0, done.stderr
    return trace


def cut_to_headers(capture: Path, place: Path) -> Path:
    """The capture with nothing of a payload, as `tcpdump -s 66` had taken it."""
    whole = gzip.decompress(capture.read_bytes())
    kept, at = [whole[:24]], 24
    while at < len(whole):
        seconds, fraction, length, original = struct.unpack_from("<4I", whole, at)
        record = whole[at + 16 : at + 16 + min(length, HEADERS)]
        kept += [struct.pack("<4I", seconds, fraction, len(record), original), record]
        at += 16 + length
    found = place / capture.name.removesuffix(".gz")
    found.write_bytes(b"".join(kept))
    return found


def captures(name: str) -> list[Path]:
    return sorted((CAPTURES / name).glob("*.pcap.gz"))


@pytest.fixture(scope="module", params=["redis-pubsub", "redis-blpop", "redis-blpop, headers"])
def case(request, tmp_path_factory) -> tuple[str, str, Report]:
    name, _, cut = request.param.partition(", ")
    place = tmp_path_factory.mktemp(name)
    files = [cut_to_headers(each, place) if cut else each for each in captures(name)]
    url = report_of(place, files)
    return request.param, url, build_report(url)


EVIDENCE = {
    "redis-pubsub": ("word", "SUBSCRIBE (redis)", 21, 1),
    "redis-blpop": ("word", "BLPOP (redis)", 20, 21),
    "redis-blpop, headers": ("triggered", "its server spoke 20 of 20 times when another client had spoken", 20, 21),
}


def test_what_waits_for_others_is_a_stream_with_its_messages(case):
    name, _, report = case
    [line] = report.streams.lines
    found = (line.reason, line.evidence, line.to_client_count, line.to_server_count)
    assert found == EVIDENCE[name]
    assert line.delay_median_ns is not None
    assert line.delay_median_ns < 1_000_000
    assert line.longest_idle_ns > 100_000_000


def test_requests_are_those_of_the_slow_log(case):
    _, url, report = case
    assert report.requests.count == 60
    assert sum(line.duration_ns > 40_000_000 for line in report.requests.slowest) == 5
    assert report.requests.slowest[0].duration_ns < 100_000_000
    exchanges = pl.DataFrame(Trace(url).read("exchanges"))
    spans = pl.DataFrame(Trace(url).read("spans"))
    assert set(spans["span_id"]) == set(exchanges.filter(~pl.col("is_stream"))["exchange_id"])
    assert exchanges["is_stream"].any()
    assert "stream" not in report.story.sentence


def test_every_view_shows_streams_beside_requests(case, capsys):
    name, _, report = case
    show(report)
    text = capsys.readouterr().out
    [line] = [line for line in text.splitlines() if line.startswith("Streams")]
    assert line == f"Streams  1, with {report.streams.messages_count} messages; in no figure of requests"
    words = "of protocols that are not read, where what is sent before an answer counts as one"
    assert (words in " ".join(text.split())) is name.endswith("headers")
    assert "<h2>Streams</h2>" in make_html(report)


class _Given:
    def __init__(self, report: Report) -> None:
        self.trace, self.streams, self.start_ns = self, report.streams, 0


def test_the_viewers_page_lists_them(case):
    _, _, report = case
    page = str(content(_Given(report), Address("/pages/streams")))
    assert report.streams.lines[0].evidence in page
    assert "Every stream" in page


def test_each_line_of_the_page_leads_to_its_packets(case):
    _, url, report = case
    [line] = report.streams.lines
    page = str(content(_Given(report), Address("/pages/streams")))
    [given] = re.findall(r"href='/#from=(-?\d+)&to=(\d+)&find=conn%3A(\d+)'", page)
    from_ns, to_ns, connection = map(int, given)
    assert from_ns < line.begin_trace_ns < line.begin_trace_ns + line.duration_ns < to_ns
    assert connection == line.connection_id
    hits = TraceSearch(open_trace(url)).hits(f"conn:{connection}")
    assert (len(hits.requests), len(hits.streams), len(hits.connections)) == (0, 1, 0)


def test_without_requests_the_headline_says_what_there_is(tmp_path):
    reader = [each for each in captures("redis-pubsub") if each.name.startswith("reader")]
    report = build_report(report_of(tmp_path, reader))
    assert report.story.sentence == "No whole request was seen, but 1 stream with 22 messages."


def test_partitions_with_streams_and_without_are_one_trace(tmp_path):
    sources = host_sources([str(each) for each in captures("redis-pubsub")])
    analyse(sources, str(tmp_path / "trace"), options=AnalysisOptions(partition_bits=5))
    trace = Trace(str(tmp_path / "trace"))
    partitions = {
        number // ID_STRIDE for number in trace.read("connections", ["connection_id"])["connection_id"].to_pylist()
    }
    assert len(partitions) > 1
    assert trace.read("streams").num_rows == 1
