"""Compares what the product reports with the truth: pure functions, each for one kind of statement.

A number of requests is right if it is exact. A duration is right within 1 ms or 5 % of the log's (whichever is more),
beyond what the log itself rounds off. A server's log is shorter than the wire by what its program waits for a processor
before it looks at its clock, and a client's longer by as much; so where both ends have logs, a duration is also right
between the two, and such are counted apart. A whole request may hold the handshake, as its client measured it, and
nothing else. Of links whose cause is not on the wire as an id, 95 % must be right (fewer only where the scenario says
that nothing on the wire could show them), and no fewer than the product's own confidence promises. A request failed if
its status is 500 or more, 408, 429 or 499, or if it had no answer. Nothing is rounded in the product's favour.
"""

import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from benchmarks.real_systems.ledger import ledger
from benchmarks.real_systems.said import Said
from benchmarks.real_systems.truth import Call, Truth
from benchmarks.real_systems.verdict import WITHIN_NS, Verdict, in_ms, within

CONFIDENCE_SLACK = 0.03
REFUSED = (408, 429, 499)
URGENT = ("error", "warning")
ROLES = ("swift", "s3", "quorum", "minio", "ceph", "object server", "container server")
"""Words that name a product or a role: only for systems that are it (`Truth.products`)."""
NON_WORDS = re.compile(r"\b(None|nan|NaN|null|inf)\b")


Row = dict[str, Any]
Pairs = list[tuple[Call, Row]]


def judge(said: Said, truth: Truth) -> list[Verdict]:
    """All verdicts on one trace."""
    rows = said.exchanges.to_dicts()
    pairs = pair_calls(truth.calls, rows)
    found = [
        *counts(truth.calls, [row for row in rows if row["method"] or not truth.http_heads]),
        *roots(truth.calls, said),
        *server_durations(pairs, truth.http_heads),
        *client_durations(pairs),
        *whole_durations(pairs, rows),
        *headline(truth.calls, said.report["requests"]),
        *ledger(said.table("spans"), sum(call.parent == "" for call in truth.calls), truth.ledger),
        *names(truth, rows),
        *request_names(pairs),
        *failures(pairs),
        *links(pairs, truth.links_right),
        *streams(truth, said),
        *losses(truth, said),
        *findings(truth, said.findings),
        *texts(truth, said),
    ]
    return [verdict for verdict in found if not truth.only or verdict.statement.startswith(truth.only)]


def pair_calls(calls: Sequence[Call], rows: Sequence[Row]) -> Pairs:
    """Which exchange is which call: of one server and client port, by target where the log has it, then in order."""
    ports = {call.server: bool(call.client_port) for call in calls}
    left: dict[tuple[str, int, str], list[Row]] = defaultdict(list)
    targets = {(call.server, call.target) for call in calls if call.target}
    for row in rows:
        target = row["target"] if (row["server"], row["target"]) in targets else ""
        port = row["client_port"] if ports.get(row["server"]) else 0
        left[row["server"], port, target].append(row)
    pairs = []
    for call in sorted(calls, key=lambda call: call.started_ns):
        same = left[call.server, call.client_port, call.target]
        if same:
            pairs.append((call, same.pop(0)))
    return pairs


def counts(calls: Sequence[Call], rows: Sequence[Row]) -> Iterator[Verdict]:
    """How many requests each server got."""
    for server in sorted({call.server for call in calls}):
        true = sum(call.server == server for call in calls)
        said = sum(row["server"] == server for row in rows)
        yield Verdict(f"requests to {server}", str(true), str(said), said == true)


def roots(calls: Sequence[Call], said: Said) -> Iterator[Verdict]:
    """How many requests clients made, as the report has it."""
    true = sum(call.parent == "" for call in calls)
    if true:
        count = said.report["requests"]["count"]
        yield Verdict("requests of clients (report)", str(true), str(count), count == true)


def server_durations(pairs: Pairs, to_first_byte: bool) -> Iterator[Verdict]:
    """How long each request was at its server, by the server's own log; a verdict for each server."""
    for server, known in _by_server(pairs, lambda call: call.server_ns is not None):
        both = [
            (_server_ns(row, to_first_byte), call.server_ns or 0, _bounds(call), _resolution_ns(call))
            for call, row in known
        ]
        yield _durations(f"durations at the server, {server}", both)


def client_durations(pairs: Pairs) -> Iterator[Verdict]:
    """How long each request took its client, by the client's own log; a verdict for each server."""
    for server, known in _by_server(pairs, lambda call: call.client_ns is not None):
        both = [(_client_ns(row), call.client_ns or 0, _bounds(call), _resolution_ns(call)) for call, row in known]
        yield _durations(f"durations at the client, {server}", both)


def whole_durations(pairs: Pairs, rows: Sequence[Row]) -> Iterator[Verdict]:
    """A whole request, its stages added up: the handshake and the request, without a pause between them."""
    whole: dict[int, int] = defaultdict(int)
    for row in rows:
        whole[row["trace_id"]] += row["critical_ns"] or 0
    known = [
        (whole[row["trace_id"]], call.client_ns, (_bounds(call)[0], call.client_ns + (call.connect_ns or 0)), 0)
        for call, row in pairs
        if call.parent == "" and call.client_ns is not None and row["parent_span_id"] is None
    ]
    if known:
        yield _durations("whole requests, their stages added up", known)


def headline(calls: Sequence[Call], requests: Row) -> Iterator[Verdict]:
    """The report's mean and median, between those of the servers' and of the clients' logs."""
    known = [call for call in calls if call.parent == "" and call.client_ns is not None]
    for name, of in (("mean", statistics.fmean), ("median", statistics.median)):
        if known:
            low = of([_bounds(call)[0] for call in known])
            high = of([_bounds(call)[1] + (call.connect_ns or 0) for call in known])
            said = requests[f"{name}_ns"]
            yield Verdict(
                f"{name} of all requests (report)",
                f"{in_ms(low)} to {in_ms(high)}",
                in_ms(said),
                within(said, (low, high)),
            )


def names(truth: Truth, rows: Sequence[Row]) -> Iterator[Verdict]:
    """What each server is called."""
    for server, pattern in truth.names.items():
        said = sorted({str(row["service"]) for row in rows if row["server"] == server or row["asked"] == server})
        right = bool(said) and all(re.fullmatch(pattern, name) for name in said)
        yield Verdict(f"service of {server}", f"`{pattern}`", ", ".join(said) or "nothing", right)


def request_names(pairs: Pairs) -> Iterator[Verdict]:
    """What requests are called, and which errors they were answered; two verdicts for each server."""
    for server, known in _by_server(pairs, lambda call: bool(call.name)):
        said = [f"{row['method']} {row['target'] or ''}".strip() for _, row in known]
        wrong = [f"{name} for {call.name}" for name, (call, _) in zip(said, known, strict=True) if name != call.name]
        yield _all_of(f"names of requests, {server}", len(known), wrong)
        results = [(call.result, row["result"] or "") for call, row in known]
        is_right = [
            said == true or (bool(true) and said.startswith(f"{true} ")) for true, said in results
        ]  # words follow
        wrong = [
            f"{said or 'none'} for {true or 'none'}"
            for (true, said), right in zip(results, is_right, strict=True)
            if not right
        ]
        errors = sum(bool(true) for true, _ in results)
        yield _all_of(f"errors of requests, {server}", errors, wrong)


def _all_of(statement: str, count: int, wrong: Sequence[str]) -> Verdict:
    return Verdict(statement, str(count), "; ".join(wrong[:3]) or str(count), not wrong)


def failures(pairs: Pairs) -> Iterator[Verdict]:
    """Which requests failed, by the logs' statuses (0 is no answer), and which their clients left."""
    if not pairs or "outcome" not in pairs[0][1]:
        return
    for outcome, wanted in (("failed", _is_failure), ("abandoned", lambda call: call.abandoned)):
        true = sum(wanted(call) for call, _ in pairs)
        said = sum(row["outcome"] == outcome for _, row in pairs)
        yield Verdict(f"{outcome} requests", str(true), str(said), said == true)


def _is_failure(call: Call) -> bool:
    return not call.abandoned and (not 100 <= call.status < 500 or call.status in REFUSED)


def links(pairs: Pairs, least: float) -> Iterator[Verdict]:
    """Whose work each request is, by what a log knows; a verdict for each server."""
    ids = {row["exchange_id"]: call.id for call, row in pairs}
    for server in sorted({call.server for call, _ in pairs}):
        known = [(call, row) for call, row in pairs if call.server == server and call.parent is not None]
        if not any(call.parent for call, _ in known):
            wrong = sum(row["parent_span_id"] is not None for _, row in known)
            if known:
                yield Verdict(
                    f"parents, {server}", "none: clients' own", f"{wrong} of {len(known)} have one", wrong == 0
                )
            continue
        right = sum(ids.get(row["parent_span_id"], "") == call.parent for call, row in known)
        sure = [1.0 if row["confidence"] is None else row["confidence"] for _, row in known]
        share, promised = right / len(known), statistics.fmean(sure)
        said = f"{right} of {len(known)} right, mean confidence {promised:.2f}"
        good = share >= least and share >= promised - CONFIDENCE_SLACK
        yield Verdict(
            f"parents, {server}", f"at least {least:.0%} of {len(known)}, and as many as promised", said, good
        )


def streams(truth: Truth, said: Said) -> Iterator[Verdict]:
    """What is no request, its messages and their delay (of a message between hosts of one machine, at most 1 ms); and
    that nothing of it is the slowest request."""
    if truth.streams is None:
        return
    servers = {one.server: one for one in truth.streams}
    for server in sorted({*servers, *(row["server"] for row in said.streams)}):
        own = [row for row in said.streams if row["server"] == server]
        true = servers[server].count if server in servers else 0
        evidence = sorted({row["evidence"] for row in own})
        yield Verdict(f"streams at {server}", str(true), f"{len(own)} ({'; '.join(evidence[:3])})", len(own) == true)
        if server not in servers:
            continue
        (low, high), count = servers[server].to_clients, sum(row["to_client_count"] for row in own)
        yield Verdict(f"messages from {server}", f"{low} to {high}", str(count), low <= count <= high)
        delays = [row["delay_median_ns"] for row in own if row["delay_median_ns"] is not None]
        right = bool(delays) and max(delays) <= WITHIN_NS
        yield Verdict(f"messages' delay, {server}", "at most 1 ms", in_ms(max(delays, default=None)), right)


def losses(truth: Truth, said: Said) -> Iterator[Verdict]:
    """Packets lost between hosts, and packets that a capture is said to have missed."""
    if truth.lost is None:
        return
    states = said.report["hop_states"] if "hop_states" in said.report else _states(said)
    lost, missed = states.get("lost", 0), states.get("capture_dropped", 0)
    yield Verdict("packets lost", str(truth.lost), str(lost), lost == truth.lost)
    yield Verdict("packets that a capture missed", "0", str(missed), missed == 0)


def findings(truth: Truth, rows: Sequence[Row]) -> Iterator[Verdict]:
    """No urgent finding in a clean run; else the fault first, and none of another kind (what follows from the fault is
    not urgent)."""
    urgent = [row for row in rows if row["severity"] in URGENT]
    said = "; ".join(_finding(row) for row in urgent[:4]) or "none"
    if truth.fault is None:
        yield Verdict("findings (warning or error)", "none", said, not urgent)
        return
    first = urgent[0] if urgent else None
    places = {first["host"], first["peer_host"]} - {None} if first else set()
    right = first is not None and first["kind"] in truth.fault.kinds and places <= {*truth.fault.hosts} and bool(places)
    yield Verdict("first finding", truth.fault.words, said, right)
    others = [row for row in urgent[1:] if row["kind"] not in truth.fault.kinds]
    yield Verdict("findings beside the fault", "none", "; ".join(map(_finding, others)) or "none", not others)


def texts(truth: Truth, said: Said) -> Iterator[Verdict]:
    """The report as text: no word of a program's insides, no product or role that is not there."""
    whole = "\n".join([said.text, *(f"{row['text']} {row['remedy']}" for row in said.findings)])
    strange = sorted({found.group() for found in NON_WORDS.finditer(whole)})
    yield Verdict("words like None in texts", "none", ", ".join(strange) or "none", not strange)
    allowed = {word.lower() for word in truth.products}
    others = [word for word in ROLES if word not in allowed and re.search(rf"\b{word}", whole, re.IGNORECASE)]
    yield Verdict(
        "products and roles in texts", ", ".join(truth.products) or "none", ", ".join(others) or "none else", not others
    )


def _by_server(pairs: Pairs, wanted: Callable[[Call], bool]) -> Iterator[tuple[str, Pairs]]:
    for server in sorted({call.server for call, _ in pairs}):
        known = [(call, row) for call, row in pairs if call.server == server and wanted(call)]
        if known:
            yield server, known


def _bounds(call: Call) -> tuple[int, int]:
    """The least and the most that a call can have taken at either end, by the logs of both."""
    known = [took for took in (call.server_ns, call.client_ns, call.most_ns) if took is not None]
    return min(known), max(known)


def _resolution_ns(call: Call) -> int:
    return max(call.server_resolution_ns, call.client_resolution_ns)


def _durations(statement: str, each: Sequence[tuple[int | None, int, tuple[int, int], int]]) -> Verdict:
    """Arguments: each: what was said, what is logged, the bounds of both ends' logs, the log's resolution; in ns."""
    off, between = [], 0
    for said, logged, bounds, rounded in each:
        if said is None or not within(said, bounds, rounded):
            off.append((logged if said is None else abs(said - logged), said, logged))
        elif not within(said, (logged, logged), rounded):
            between += 1
    words = f"{len(each) - len(off) - between} of {len(each)}"
    words += f", {between} between both ends' logs" if between else ""
    if off:
        _, said, true = max(off, key=lambda one: one[0])
        words += f"; {len(off)} not, worst {in_ms(said)} for {in_ms(true)}"
    return Verdict(statement, f"{len(each)} within 1 ms or 5 %", words, not off)


def _server_ns(row: Row, to_first_byte: bool) -> int | None:
    end = row["response_first_sent_trace_ns" if to_first_byte else "response_last_sent_trace_ns"]
    return _between(row["request_first_received_trace_ns"], end)


def _client_ns(row: Row) -> int | None:
    return _between(row["request_first_sent_trace_ns"], row["response_last_received_trace_ns"])


def _between(start: int | None, end: int | None) -> int | None:
    return None if start is None or end is None else end - start


def _states(said: Said) -> dict[str, int]:
    counted = said.table("hops").group_by("state").len()
    return dict(zip(counted["state"].to_list(), counted["len"].to_list(), strict=True))


def _finding(row: Row) -> str:
    places = "–".join(place for place in (row["host"], row["peer_host"]) if place)
    return f"{row['kind']} {places}".strip()


def wrong(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Those that are not right."""
    return [verdict for verdict in verdicts if not verdict.right]
