"""Texts about times, counts and packets for the page. They are plain: code that puts them on the page escapes them."""

from collector.queries import Hop, HopKind, HopState, PacketFields, Request, Summary

UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"), (1, "ns"))
KIND_NAMES = {
    HopKind.SYN: "SYN",
    HopKind.SYN_ACK: "SYN ACK",
    HopKind.DATA: "data",
    HopKind.ACK: "ACK",
    HopKind.FIN: "FIN",
    HopKind.RST: "RST",
    HopKind.KEEPALIVE: "keepalive",
    HopKind.WINDOW_PROBE: "window probe",
}
STATE_NAMES = {
    HopState.MATCHED: "seen at both ends",
    HopState.LOST: "lost on the way: sent, never arrived, never acknowledged",
    HopState.CAPTURE_DROPPED: "arrived (it was acknowledged), but the receiver's capture missed it",
    HopState.OUTSIDE_WINDOW: "seen at one end; the other was not capturing then",
    HopState.AMBIGUOUS: "several packets could be its partner, and nothing distinguishes them",
    HopState.UNMATCHED: "seen at one end; no partner found",
}
OUTCOME_WORDS = {"ok": "ok", "failed": "failed", "abandoned": "given up by the client", "unknown": "unknown"}
"""Of requests (`collector.requests.outcomes`), as people read them."""
Fact = tuple[str, str]
"""A label and its value."""


def duration(time_ns: int, digits: int = 3) -> str:
    """A duration in the unit that suits it, to `digits` significant digits: `73.2 ms`; exact below 1 µs."""
    size = abs(time_ns)
    for unit_ns, unit in UNITS:
        if size >= unit_ns:
            whole = len(str(size // unit_ns))
            return f"{time_ns / unit_ns:,.{max(0, digits - whole) if unit_ns > 1 else 0}f} {unit}"
    return "0 ns"


def duration_words(took_ns: int, *, ended: bool) -> str:
    """How long a request took; of one whose end was not seen, how much of it was: `≥ 12.0 µs`."""
    return duration(took_ns) if ended else f"≥ {duration(took_ns)}"


def exact_time(time_ns: int) -> str:
    """A time since the trace's start to the nanosecond, in groups of three: `0.040 907 790 s`."""
    sign, size = ("-" if time_ns < 0 else ""), abs(time_ns)
    fraction = f"{size % 1_000_000_000:09d}"
    return f"{sign}{size // 1_000_000_000}.{fraction[:3]} {fraction[3:6]} {fraction[6:]} s"


def plural(count: int, noun: str) -> str:
    """`1 packet`, `2,458 packets`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def facts_line(summary: Summary, hosts_count: int) -> list[str]:
    """The trace in a line of facts."""
    facts = [
        plural(summary.packets_count, "packet"),
        plural(summary.hops_count, "arrow"),
        plural(summary.requests_count, "request"),
        plural(hosts_count, "host"),
        duration(summary.duration_ns, 4),
    ]
    if summary.delay_p50_ns is not None and summary.delay_p99_ns is not None:
        facts.append(f"delay p50 {duration(summary.delay_p50_ns)}, p99 {duration(summary.delay_p99_ns)}")
    lost = summary.state_counts[list(HopState).index(HopState.LOST)]
    return [*facts, plural(lost, "packet") + " lost" if lost else "no packet lost"]


def request_title(request: Request) -> str:
    """`PUT /v1/a/c/o → 201`."""
    return f"{request.title}{answer_words(request.answer, request.outcome)}"


def answer_words(answer: str, outcome: str) -> str:
    """` → 201`, ` → 200 UNAVAILABLE ✗`, ` → ✗ no whole answer`, ` → given up`; "" where nothing is visible and nothing
    failed.

    Arguments: `answer`, what the answer says of its result (`Request.answer`).
    """
    failed = outcome == "failed"
    if outcome == "abandoned":
        return " → given up"
    if answer:
        return f" → {answer}{' ✗' if failed else ''}"
    return " → ✗ no whole answer" if failed else ""


def status_words(answer: str, outcome: str) -> str:
    """A cell of a table: `201`, `ok`, `42P01 undefined_table`, `✗ 503`, `✗ no whole answer`, `given up by the client`,
    `unknown`.

    Arguments: as for `answer_words`.
    """
    if outcome == "abandoned":
        return OUTCOME_WORDS[outcome]
    if outcome == "failed":
        return f"✗ {answer or 'no whole answer'}"
    return answer or "ok" if outcome == "ok" else f"{answer or 'none seen'} (outcome unknown)"


def outcome_words(failed_count: int, abandoned_count: int, unknown_count: int) -> str:
    """`, 3 failed, 2 given up by clients, 12 of unknown outcome`; what there is none of is left out."""
    counts = ((failed_count, "failed"), (abandoned_count, "given up by clients"), (unknown_count, "of unknown outcome"))
    return "".join(f", {count:,} {what}" for count, what in counts if count)


def hop_title(hop: Hop) -> str:
    """What it is and where it goes."""
    again = f", attempt {hop.attempt}" if hop.attempt > 1 else ""
    return f"{KIND_NAMES[hop.kind]}{again}: {hop.source or '?'} → {hop.target or '?'}"


def hop_facts(hop: Hop) -> list[Fact]:
    """A hop in full, except for its packets."""
    facts: list[Fact] = []
    if hop.sent_ns is not None:
        facts.append(("sent", exact_time(hop.sent_ns)))
    if hop.received_ns is not None:
        facts.append(("received", exact_time(hop.received_ns)))
    if hop.delay_ns is not None:
        facts.append(("delay", delay(hop.delay_ns, hop.uncertainty_ns, hop.likely_error_ns)))
    if hop.state is not HopState.MATCHED:
        facts.append(("state", STATE_NAMES[hop.state]))
    if hop.stream_start is not None and hop.stream_end is not None and hop.stream_end > hop.stream_start:
        length = hop.stream_end - hop.stream_start
        facts.append(("bytes", f"{length:,} ({hop.stream_start:,} to {hop.stream_end:,} of the stream)"))
    if hop.request is not None:
        facts.append(("request", f"#{hop.request + 1}"))
    if hop.doubt:
        facts.append(("link", hop.doubt))
    if hop.tls:
        facts.append(("handshake", hop.tls))
    facts += [(f"{side} process", words) for side, words in hop.owners]
    return facts


def delay(delay_ns: int, uncertainty_ns: int | None, likely_error_ns: int | None = None) -> str:
    """A delay with its likely error and its bound; never one without saying so."""
    if uncertainty_ns is None:
        return f"{duration(delay_ns)} (uncertainty unknown)"
    return f"{duration(delay_ns)} {error_words(uncertainty_ns, likely_error_ns)}"


def error_words(uncertainty_ns: int, likely_error_ns: int | None) -> str:
    """`± 1.50 µs (95 %; at most 20.0 µs)`; `± 20.0 µs` where no less is known than the bound."""
    if likely_error_ns is None or likely_error_ns >= uncertainty_ns:
        return f"± {duration(uncertainty_ns)}"
    return f"± {duration(likely_error_ns)} (95 %; at most {duration(uncertainty_ns)})"


def packet_facts(packet: PacketFields) -> list[Fact]:
    """A packet's fields as its host saw it."""
    facts = [
        ("frame", f"{packet.frame:,} at {packet.point}"),
        ("from", f"{packet.src_addr} port {packet.src_port}{_in_brackets(packet.src_name)}"),
        ("to", f"{packet.dst_addr} port {packet.dst_port}{_in_brackets(packet.dst_name)}"),
        ("flags", packet.flag_names),
        ("seq", f"{packet.seq}"),
        ("ack", f"{packet.ack}"),
        ("payload", plural(packet.payload_len, "byte")),
        ("window", f"{packet.window} (unscaled)"),
    ]
    if packet.ip_id is not None:
        facts.append(("IP ID", f"{packet.ip_id}"))
    if packet.tsval is not None and packet.tsecr is not None:
        facts.append(("timestamps", f"{packet.tsval}, echo {packet.tsecr}"))
    cut = f", {packet.captured_len:,} captured" if packet.captured_len < packet.original_len else ""
    facts.append(("frame length", f"{packet.original_len:,}{cut}"))
    return facts


def _in_brackets(name: str) -> str:
    return f" ({name})" if name else ""


def both_facts(sent: PacketFields, received: PacketFields) -> list[Fact]:
    """The fields of a packet that was seen at both ends; both values where they differ."""
    at_sender, at_receiver = dict(packet_facts(sent)), dict(packet_facts(received))
    labels = [*at_sender, *(label for label in at_receiver if label not in at_sender)]
    return [(label, _either(at_sender.get(label, "none"), at_receiver.get(label, "none"))) for label in labels]


def compact(count: int) -> str:
    """A count in at most five characters: `950`, `12.3k`, `3.08M`."""
    for size, suffix in ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")):
        if count >= size and count >= 10_000:
            return f"{count / size:.3g}{suffix}" if count / size < 999.5 else f"{count // size}{suffix}"
    return f"{count:,}"


def bytes_in_words(count: int) -> str:
    """A size in the unit that suits it: `1.18 KB`, `950 B`; units of 1,000, as rates have them."""
    for size, unit in ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "KB")):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} B"


def _either(sent: str, received: str) -> str:
    return sent if sent == received else f"{sent} → {received}"
