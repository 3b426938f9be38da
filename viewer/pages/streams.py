"""The page about streams, which are no requests: subscriptions, sessions, tunnels, event streams, blocking reads."""

from urllib.parse import quote

from dash import dcc, html
from dash.development.base_component import Component

from collector.queries import StreamLine, StreamSummary, group_words
from viewer.pages.address import Address
from viewer.pages.context import PageData
from viewer.pages.parts import Row, heading, nothing, table
from viewer.wording import bytes_in_words, duration, exact_time, plural

KINDS_HEAD = ("stream", "messages", "delay")
HEAD = (
    *("evidence", "service", "from → to", "began", "lasted", "messages to client", "to server", "bytes"),
    *("delay, median", "p99", "±", "longest idle", "pings, closes", "closed by"),
)


def content(data: PageData, address: Address) -> list[Component]:
    """The page."""
    title = heading(
        "Streams",
        "Connections on which nobody waits for an answer: each message has its own delay, and the time between two is "
        "nobody's. They are in no figure of requests. Click one to see its packets.",
    )
    streams = data.trace.streams
    if not streams.count:
        return [title, nothing("No stream was recognised in this trace", "docs/reports.md defines a stream.")]
    kinds = table(KINDS_HEAD, [group_words(group) for group in streams.groups])
    return [
        title,
        html.P(f"{plural(streams.count, 'stream')} with {plural(streams.messages_count, 'message')}."),
        html.Section([html.H2("By service"), kinds], className="card", id="stream-kinds"),
        html.Section([html.H2(_list_words(streams)), _lines(data, streams)], className="card", id="streams"),
    ]


def _list_words(streams: StreamSummary) -> str:
    if len(streams.lines) == streams.count:
        return "Every stream"
    return f"The {len(streams.lines):,} streams with most messages"


def _lines(data: PageData, streams: StreamSummary) -> Component:
    return table(HEAD, [_row(line, data.trace.start_ns) for line in streams.lines])


def _row(line: StreamLine, start_ns: int) -> Row:
    return (
        dcc.Link(line.evidence, href=_link(line, start_ns), refresh=True),
        line.service or "?",
        f"{line.client or '?'} → {line.server or '?'}",
        "?" if line.begin_trace_ns is None else exact_time(line.begin_trace_ns - start_ns),
        _or_dash(line.duration_ns),
        f"{line.to_client_count:,}",
        f"{line.to_server_count:,}",
        bytes_in_words(line.to_client_bytes + line.to_server_bytes),
        _or_dash(line.delay_median_ns),
        _or_dash(line.delay_p99_ns),
        _or_dash(line.uncertainty_ns if line.delay_median_ns is not None else None),
        _or_dash(line.longest_idle_ns),
        "" if line.control_count is None else f"{line.control_count:,}",
        line.closing or "",
    )


def _link(line: StreamLine, start_ns: int) -> str:
    """Where the timeline shows a stream; the search is at its connection."""
    found = f"find={quote(f'conn:{line.connection_id}')}"
    if line.begin_trace_ns is None or line.duration_ns is None:
        return f"/#{found}"
    from_ns, room = line.begin_trace_ns - start_ns, max(line.duration_ns // 16, 1000)
    return f"/#from={from_ns - room}&to={from_ns + line.duration_ns + room}&{found}"


def _or_dash(time_ns: int | None) -> str:
    return "?" if time_ns is None else duration(time_ns)
