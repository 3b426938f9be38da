"""The sentence that answers "where did the time go?", and parts that add up."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.reporting.story import Story, make_story
from collector.requests.spans import link
from collector.trace import durations
from collector.trace.model import CommandInfo, TraceInfo
from testkit.tables import BASE_NS, table
from tests.collector.requests.test_spans import forests
from tests.helpers.exchange_lines import at_us, exchanges_of


def clocks(**offsets_us: int) -> pa.Table:
    return table(
        "clocks",
        [
            {
                "host": host,
                "from_host_ns": 0,
                "to_host_ns": 2 * BASE_NS,
                "offset_ns": offset * 1000,
                "skew_ppb": 0,
                "uncertainty_ns": 0,
                "reference": offset == 0,
                "method": "",
            }
            for host, offset in offsets_us.items()
        ],
    )


def story_of(
    text: str, command: tuple[int, int] | None = None, streams: pa.Table | None = None, **offsets_us: int
) -> Story:
    exchanges = exchanges_of(text)
    ran = None
    if command:
        offset = offsets_us.get("client", 0)
        began, ended = (at_us(str(at + offset)) for at in command)
        ran = CommandInfo(("swift", "upload", "c", "a b"), "client", began, ended, 0)
    info = TraceInfo(created_ns=0, tool_version="", hosts=(), command=ran)
    return make_story(info, link(exchanges), exchanges, clocks(**offsets_us), streams=streams)


def parts(story: Story) -> list[str]:
    return [f"{part.label} {part.duration_ns / 1000:g} ± {part.uncertainty_ns / 1000:g}" for part in story.parts]


PUT = """
    client > proxy/swift-proxy     1000 1010 1890 1900 connect=995 method=PUT target=/v1/a/c/o tx=t1
    proxy > storage1/swift-object  1100 1110 1490 1500 connect=1090 tx=t1
    proxy > storage2/swift-object  1100 1110 1590 1600 connect=1090 tx=t1
"""


def test_one_request() -> None:
    story = story_of(PUT)
    assert story.sentence == (
        "PUT /v1/a/c/o (t1) took 905.0 µs: 390.0 µs (43 %) in swift-object, 370.0 µs in swift-proxy, "
        "100.0 µs waiting for the slower of 2 parallel calls to swift-object, and 45.0 µs elsewhere."
    )
    assert story.duration_ns == 905_000
    assert parts(story) == [
        "opening connections 15 ± 0",
        "sending to swift-proxy (uplink) 10 ± 1",
        "in swift-proxy 370 ± 0",
        "in swift-object 390 ± 0",
        "waiting for the slower of 2 parallel calls to swift-object 100 ± 0",
        "in transfers between servers 10 ± 1",
        "receiving from swift-proxy (downlink) 10 ± 1",
    ]


def test_what_clients_gave_up_is_in_no_mean_and_not_the_slowest() -> None:
    lines = "client > proxy/web 0 10 90 100\nclient > proxy/web 1000 1010 1190 1200\n"
    story = story_of(lines + "client > proxy/web 2000 2010 - - up=302000 outcome=abandoned cut")
    assert story.sentence.startswith(
        "1 of 3 requests was given up by its client after 300.0 ms; the 2 others took 150.0 µs on average; "
        "the slowest, GET /, took 200.0 µs: "
    )


def test_a_trace_of_nothing_but_requests_that_were_given_up() -> None:
    line = "client > proxy/web {0} {0} - - up={1} outcome=abandoned cut\n"
    one = story_of(line.format(1000, 301_000))
    assert one.sentence.startswith("GET / was given up by its client after 300.0 ms: ")
    story = story_of(line.format(1000, 301_000) + line.format(2000, 402_000))
    assert story.sentence.startswith(
        "All 2 requests were given up by their clients after 350.0 ms at the median. The one that took longest, GET /, "
        "was given up by its client after 400.0 ms: "
    )


CALLS = {
    "the parent waited for all of three replicas": (
        ("/sda/7/a/c/o 40", "/sdb/7/a/c/o 50", "/sdc/7/a/c/o 80"),
        "waiting for the slower of 3 parallel calls to object 40",
    ),
    "the parent answered before the last of three replicas": (
        ("/sda/7/a/c/o 40", "/sdb/7/a/c/o 50", "/sdc/7/a/c/o 200"),
        "waiting for the quorum of object 10",
    ),
    "a replica never answered": (
        ("/sda/7/a/c/o 40", "/sdb/7/a/c/o 50", "/sdc/7/a/c/o -"),
        "waiting for the quorum of object 10",
    ),
    "three calls of other things, the last of which did not matter": (
        ("/price/7/x/y 40", "/stock/8/x/z 50", "/audit/9/w/z 200"),
        "waiting for the slower of 3 parallel calls to object 10",
    ),
    "a call without a visible target is not held to be a replica's": (
        ("- 40", "- 50", "- 200"),
        "waiting for the slower of 3 parallel calls to object 10",
    ),
}


@pytest.mark.parametrize(("calls", "expected"), CALLS.values(), ids=CALLS.keys())
def test_a_quorum_is_said_where_the_last_of_several_like_calls_came_after_the_answer(
    calls: tuple[str, ...], expected: str
) -> None:
    lines = ["client > proxy 0 5 95 100 tx=a method=PUT target=/v1/a/c/o"]
    for number, (target, ended) in enumerate((each.split() for each in calls), 1):
        named = f"method=PUT target={target}" if target != "-" else "unread"
        lines.append(
            f"proxy > storage{number}/object 10 12 {'-' if ended == '-' else int(ended) - 2} {ended} tx=a {named}"
        )
    exchanges = exchanges_of("\n".join(lines))
    if "- 40" in calls:
        place = exchanges.column_names.index("target")
        exchanges = exchanges.set_column(place, "target", pa.nulls(len(exchanges), pa.string()))
    story = make_story(TraceInfo(created_ns=0, tool_version="", hosts=()), link(exchanges), exchanges, clocks())
    assert [part for part in parts(story) if part.startswith("waiting")] == [f"{expected} ± 0"]


@pytest.mark.parametrize(
    ("protocol", "in_request", "in_answer"),
    [
        ("http/1.1", "in the client, between pieces of its request", "in db, between pieces of its answer"),
        (
            "unknown",
            "between pieces that the client sent before db answered",
            "between pieces that db sent before it was asked again",
        ),
    ],
)
def test_a_pause_in_a_turn_of_an_unread_protocol_is_nobodys(protocol: str, in_request: str, in_answer: str) -> None:
    exchanges = exchanges_of(f"client > db 0 10 50000 90000 whole=30000 first=50010 protocol={protocol}")
    silences = table(
        "silences",
        [
            {
                "exchange_id": 1,
                "in_response": in_response,
                "from_trace_ns": at_us(since),
                "to_trace_ns": at_us(until),
                "cause": "idle",
            }
            for in_response, since, until in ((False, "10", "29990"), (True, "50010", "80000"))
        ],
    )
    info = TraceInfo(created_ns=0, tool_version="", hosts=())
    labels = [part.label for part in make_story(info, link(exchanges, silences), exchanges, clocks()).parts]
    assert [label for label in labels if "pieces" in label] == [in_request, in_answer]


def test_one_end_does_not_separate_the_server_and_the_network() -> None:
    story = story_of("client > -/proxy 30 - - 600 connect=0 connected=25 first=557 rtt=25")
    assert parts(story) == [
        "opening connections 25 ± 0",
        "in proxy or the network to it 527 ± 0",
        "receiving from proxy (downlink) 43 ± 1",
    ]
    assert story.sentence.endswith(
        "Of 527.0 µs only the client's end was captured, which does not separate server and network: "
        "the network took at least about 25.0 µs of it (the fastest round trips seen)."
    )
    cut = story_of("client > server/proxy 30 - - 600 first=557")
    assert "Of 527.0 µs the capture of server does not hold all packets, which does not separate" in cut.sentence
    unbounded = story_of("client > -/proxy 30 - - 600 first=557")
    assert unbounded.sentence.endswith("how much the network took does not show.")


def test_the_servers_end_alone_shows_its_work_and_nothing_of_the_client() -> None:
    story = story_of("- > proxy - 30 557 -")
    assert story.duration_ns == 527_000
    assert parts(story) == ["in proxy 527 ± 0"]
    assert story.sentence.endswith(
        " The client's end was not captured: what it waited for connections and the network is not in this."
    )


def test_a_few_requests_without_their_clients_end_are_counted() -> None:
    story = story_of(
        """
        client > proxy   0  10  90 100
        - > proxy        - 210 300   -
        client > proxy 400 410 490 500
        """,
        command=(0, 600),
    )
    assert " Of 1 of 3 requests the client's end was not captured: what it waited" in story.sentence


def test_many_requests_name_the_slowest() -> None:
    story = story_of(
        """
        client > proxy    0 10 90 100
        client > proxy  200 210 490 500 method=GET target=/b tx=t2
        client > proxy  600 610 -   -   cut
        """
    )
    assert story.sentence.startswith(
        "2 requests took 200.0 µs on average; the slowest, GET /b (t2), took 300.0 µs: 280.0 µs (93 %) in proxy, "
        "10.0 µs ± 1.0 µs sending to proxy (uplink),"
    )
    assert story.duration_ns == 300_000


def test_requests_of_servers_among_themselves_are_not_the_users() -> None:
    story = story_of(
        """
        client > proxy     0  10   90  100 tx=a
        proxy > storage1  20  22   40   42 tx=a
        storage1 > proxy 500 510 9900 9910 tx=b
        """
    )
    assert story.duration_ns == 100_000


def test_a_command() -> None:
    story = story_of(
        """
        client > proxy/auth    1000 1010 1090 1100 connect=990
        client > proxy/swift   2000 2010 2390 2400
        """,
        command=(0, 3000),
        client=250,
    )
    assert parts(story) == [
        "before its first packet (client start-up) 990 ± 0",
        "opening connections 10 ± 0",
        "sending to auth and swift (uplink) 20 ± 2",
        "in auth 80 ± 0",
        "in swift 380 ± 0",
        "receiving from auth and swift (downlink) 20 ± 2",
        "in the client between requests 900 ± 0",
        "in the client after the last answer 600 ± 0",
    ]
    assert story.sentence.startswith("`swift upload c 'a b'` took 3.0 ms: 990.0 µs (33 %) before its first")
    assert story.duration_ns == 3_000_000


def test_a_command_whose_requests_overlap_counts_time_once() -> None:
    story = story_of(
        """
        client > proxy 100 110 590 600
        client > proxy 200 210 790 800
        client > proxy 300 310 390 400
        """,
        command=(0, 1000),
    )
    assert parts(story) == [
        "before its first packet (client start-up) 100 ± 0",
        "sending to proxy (uplink) 10 ± 1",
        "in proxy 580 ± 0",
        "receiving from proxy (downlink) 10 ± 1",
        "in the client between requests 100 ± 0",
        "in the client after the last answer 200 ± 0",
    ]


STREAMS = table("streams", [{"client_host": "client", "to_client_count": 20, "to_server_count": 1}])


def test_a_command_that_waits_on_a_stream_says_so() -> None:
    sentence = story_of("storage1 > storage2 100 110 490 500", command=(0, 1000), streams=STREAMS).sentence
    assert sentence.endswith(" It had 1 stream with 21 messages open; waiting on them is the client's own time.")
    others = table("streams", [{"client_host": "storage1", "to_client_count": 20, "to_server_count": 1}])
    assert "open" not in story_of(PUT, command=(0, 3000), streams=others).sentence


def test_streams_are_no_headline_beside_requests() -> None:
    assert story_of(PUT, streams=STREAMS) == story_of(PUT)
    assert story_of("", streams=STREAMS).sentence == "No whole request was seen, but 1 stream with 21 messages."


def test_requests_of_other_hosts_are_not_the_commands() -> None:
    story = story_of("storage1 > storage2 100 110 490 500", command=(0, 1000))
    assert parts(story) == ["in the client (no request of it was seen) 1000 ± 0"]


def test_no_whole_request() -> None:
    assert story_of("client > proxy 0 10 - - cut").sentence == "No whole request was seen in 0 packets."


@settings(max_examples=50)
@given(forests(), st.one_of(st.none(), st.tuples(st.integers(-50, 150), st.integers(1, 400))))
def test_parts_add_up_exactly(text: str, window: tuple[int, int] | None) -> None:
    text = text.replace("a >", "client >")
    command = None if window is None else (window[0], window[0] + window[1])
    story = story_of(text, command, client=7)
    assert sum(part.duration_ns for part in story.parts) == story.duration_ns
    assert all(part.duration_ns > 0 for part in story.parts)
    if command:
        assert story.duration_ns == window[1] * 1000


@pytest.mark.parametrize(
    ("duration_ns", "words"),
    [
        (0, "0 ns"),
        (640, "640 ns"),
        (85_000, "85.0 µs"),
        (412_300_000, "412.3 ms"),
        (1_250_000_000, "1.250 s"),
        (-85_000, "-85.0 µs"),
    ],
)
def test_durations_in_words(duration_ns: int, words: str) -> None:
    assert durations.in_words(duration_ns) == words


@pytest.mark.parametrize(
    ("part", "whole", "words"),
    [(0, 100, "0 %"), (1, 1000, "<1 %"), (73, 100, "73 %"), (5, 0, "0 %"), (100, 100, "100 %")],
)
def test_shares(part: int, whole: int, words: str) -> None:
    assert durations.share(part, whole) == words
