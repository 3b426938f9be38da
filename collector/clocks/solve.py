"""One timescale for all hosts, from the traffic alone, with an error bar.

For each pair of hosts that exchanged packets, `collector.clocks.bounds` gives the lines that their clocks' difference
may follow. Here all pairs are solved together: the hosts' clocks are lines such that no packet arrives before it was
sent, and the smallest delay of each pair, over both directions, is as large as can be (on a symmetric path that is the
truth: the channel between upper and lower bounds is split in the middle). It is the sum over all pairs that is made as
large as can be; should that place packets of a pair before their sending, each pair's delay counts as a share of what
it can be, and none may fall below 0. A slope is taken only if it pays: a clock is held to run true unless letting it
drift widens the channel by more than a tenth of the drift.

Worked example: A sends at 100, B receives at 1130; B answers at 1140, A receives at 150 (ns). So theta = B - A is at
most 1030 and at least 990: 1010 ± 20. The first packet took 20 ± 20, the second 20 ± 20.

Stamps cut to a tick (a classic pcap file counts microseconds) were up to one tick later in truth, so a packet may seem
to arrive that much before it was sent: both bounds of a pair are wider by the coarser tick of the two.

A host with no traffic to the others, even through third hosts, cannot be aligned: its clock is taken as it is, its
method is `none` and its uncertainty is null.

A stepped clock follows one line up to the step and another from there (`collector.clocks.steps` finds where), so each
line is solved for as if it were a host of its own. Where no lines fit all the same, the least wrong ones are used, the
method is `inconsistent` and the uncertainty covers the worst packet.

Source: Moon et al. (INFOCOM 1999) for the hull; RFC 2330 §10 for the terms. Time: int64 ns; the solver works on
residuals to a rough alignment, so float64 is exact to below 1 ns.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
import polars as pl
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from collector.clocks.alignment import NS_PER_S, Alignment
from collector.clocks.bounds import MAX_SKEW_PPB, Bounds, Floats, Polygon, lowest_points, possible_lines
from collector.clocks.evidence import Ways
from collector.clocks.likely import Line, PacketsBetween, likely_errors, likely_with_ticks, side_of
from collector.clocks.line_graph import LineGraph
from collector.clocks.linear_programs import LinearProgram, Places
from collector.clocks.steps import Cuts, find_steps, line_of
from collector.trace.schema import CLOCKS

SKEW_PRICE = 0.1
"""Share of a drift over the trace that it must widen the channels by, or the clock is held to run true."""
MOST_OFFSET_NS = 1 << 62
"""Between two clocks of what pcap can hold, 1970 to 2106."""
NO_FRAME = 0xFFFFFFFF
"""After the last frame."""
NO_TICKS: Mapping[str, int] = MappingProxyType({})
MOST_TURNS = 200
"""Iterations of the solver for each of its variables: clocks that make sense take up to four; beyond its numbers it
may go round for ever."""
LEAST_MARGIN_NS = -0.5
"""The least delay that still counts as none below 0, since solutions are rounded to whole ns."""
MOST_ROUNDS = 20
"""Rounds that add packets which thinning dropped and which the solution places before their sending."""

Ints = NDArray[np.int64]


class _Direction(Struct, frozen=True):
    """Hops from one host to another: their stamps in ns, rebased to each line's first, the received ones later by
    `tick_ns`: how coarse stamps of the two are, 0 for 1 ns."""

    send_ns: Ints
    receive_ns: Ints
    tick_ns: int


class _Line(Struct, frozen=True):
    """A host's clock from one step to the next: first and last stamp (ns), first and last frame."""

    host: str
    first_ns: int
    last_ns: int
    first_frame: int
    last_frame: int


class _Network(Struct):
    """Lines, the hops between them, and a rough alignment: `rough_ns` of a line is its clock less its reference's."""

    lines: list[_Line]
    directions: dict[tuple[int, int], _Direction]
    rough_ns: list[int]
    group: list[int]
    """For each line the number of its group: the lines that traffic joins."""
    reference: list[int]
    """For each group its reference line."""

    @property
    def main_reference(self) -> int:
        """The reference of the largest group, whose clock is the trace's."""
        return max(self.reference, key=lambda line: self.group.count(self.group[line]))


def solve(evidence: Ways, windows: Sequence[tuple[str, int, int]], ticks_ns: Mapping[str, int] = NO_TICKS) -> Alignment:
    """Put all hosts on the clock of one of them.

    Arguments: `evidence` as `evidence.ways_of` finds it in hops; `windows`, for each host its name and its first and
    last stamp (ns); `ticks_ns`, how coarse the stamps of a host are, where coarser than 1 ns.
    Cost: linear in hops, then a small linear programme.
    """
    ways = {pair: way for pair, way in evidence.items() if pair[::-1] in evidence}
    network = _network(ways, sorted(windows), _separating(ways, find_steps(ways).cuts), ticks_ns)
    skews_ppb, offsets_ns, consistent = _solve_lines(network)
    polygons = {pair: _polygon(network, pair) for pair in network.directions if pair[0] < pair[1]}
    pairs = _pair_uncertainties(network, polygons, offsets_ns, skews_ppb)
    uncertainty, likely = _line_uncertainties(network, pairs), _line_likely_errors(network, pairs)
    clocks = _clock_table(network, skews_ppb, offsets_ns, uncertainty, likely, consistent)
    return Alignment(clocks, _pair_table(network, pairs, offsets_ns, skews_ppb))


def own_clocks(windows: Sequence[tuple[str, int, int]]) -> Alignment:
    """Every host's clock as it is, as if true: for traces whose correction is turned off."""
    rows = [
        {"host": host, "from_host_ns": first, "to_host_ns": last, "from_frame": 1, "to_frame": NO_FRAME}
        | {"reference": index == 0}
        | {"offset_ns": 0, "skew_ppb": 0, "method": "raw"}
        for index, (host, first, last) in enumerate(windows)
    ]
    return Alignment(pa.Table.from_pylist(rows, CLOCKS), _empty_pairs())


def _network(ways: Ways, windows: Sequence[tuple[str, int, int]], cuts: Cuts, ticks_ns: Mapping[str, int]) -> _Network:
    lines = [line for window in windows for line in _lines(ways, window, cuts.get(window[0], []))]
    first_line: dict[str, int] = {}
    for index, line in enumerate(lines):
        first_line.setdefault(line.host, index)
    directions = {}
    for (send, receive), way in ways.items():
        a = first_line[send] + line_of(way.send_frame, cuts.get(send, []))
        b = first_line[receive] + line_of(way.receive_frame, cuts.get(receive, []))
        tick_ns = max(ticks_ns.get(send, 0), ticks_ns.get(receive, 0))
        for of_a, of_b in sorted(set(zip(a.tolist(), b.tolist(), strict=True))):
            part = (a == of_a) & (b == of_b)
            latest_ns = way.receive_ns[part] + tick_ns  # a stamp is cut to its tick: both bounds are that much wider
            stamps = way.send_ns[part] - lines[of_a].first_ns, latest_ns - lines[of_b].first_ns
            directions[(of_a, of_b)] = _Direction(*stamps, tick_ns)
    both_ways = {pair: way for pair, way in directions.items() if pair[::-1] in directions}
    network = _Network(lines, both_ways, [0] * len(lines), list(range(len(lines))), [])
    _align_roughly(network)
    return network


def _frames_of(ways: Ways, host: str) -> tuple[Ints, Ints]:
    """Frames and stamps of a host's hops."""
    sent = [(way.send_frame, way.send_ns) for (send, _), way in ways.items() if send == host]
    received = [(way.receive_frame, way.receive_ns) for (_, receive), way in ways.items() if receive == host]
    frames, stamps = (np.concatenate(column) for column in zip(*sent, *received, strict=True))
    return frames, stamps


def _separating(ways: Ways, cuts: Cuts) -> Cuts:
    """The cuts that have hops before and behind them: without hops there is no line to solve for."""
    separating = {}
    for host, places in cuts.items():
        last = np.sort(_frames_of(ways, host)[0])
        behind = np.searchsorted(last, places)  # hops before each cut
        are_behind = np.diff(behind, append=len(last)) > 0
        separating[host] = [
            cut for cut, before, any_behind in zip(places, behind, are_behind, strict=True) if before and any_behind
        ]
    return separating


def _lines(ways: Ways, window: tuple[str, int, int], cuts: list[int]) -> list[_Line]:
    """The host's window cut at its steps: the first line has its first stamp, the last line its last."""
    host, first_ns, last_ns = window
    if not cuts:
        return [_Line(host, first_ns, last_ns, 1, NO_FRAME)]
    frames, stamps = _frames_of(ways, host)
    number = line_of(frames, cuts)
    edges = [1, *cuts, NO_FRAME]
    lines = []
    for index in range(len(cuts) + 1):
        own = stamps[number == index]
        first = first_ns if index == 0 else int(own.min())
        last = last_ns if index == len(cuts) else int(own.max())
        lines.append(_Line(host, min(first, last), max(first, last), edges[index], edges[index + 1] - 1))
    return lines


def _align_roughly(network: _Network) -> None:
    """Choose a reference for each group of hosts that share traffic, and add up offsets along the way to each host."""
    graph = LineGraph(range(len(network.lines)), (pair for pair in network.directions if pair[0] < pair[1]))
    packets = dict.fromkeys(range(len(network.lines)), 0)
    for (a, b), way in network.directions.items():
        packets[a] += len(way.send_ns)
        packets[b] += len(way.send_ns)
    for number, members in enumerate(graph.groups()):
        reference = max(members, key=lambda host: (len(graph.neighbours[host]), packets[host], -host))
        network.reference.append(reference)
        network.group[reference] = number
        for known, host in graph.ways_from(reference):
            there, back = network.directions[(known, host)], network.directions[(host, known)]
            upper = int((there.receive_ns - there.send_ns).min())
            lower = int((back.send_ns - back.receive_ns).max())
            network.rough_ns[host] = network.rough_ns[known] + (upper + lower) // 2
            network.group[host] = number


def _residuals(network: _Network, a: int, b: int) -> Ints:
    """Delays of the hops from a to b by the rough alignment."""
    way = network.directions[(a, b)]
    return (way.receive_ns - way.send_ns) - (network.rough_ns[b] - network.rough_ns[a])


def _polygon(network: _Network, pair: tuple[int, int]) -> Polygon:
    """Of clock b - clock a over a's time, as a residual to the rough alignment."""
    a, b = pair
    there, back = network.directions[(a, b)], network.directions[(b, a)]
    upper = lowest_points(there.send_ns / NS_PER_S, _residuals(network, a, b).astype(np.float64))
    lower = lowest_points(back.receive_ns / NS_PER_S, _residuals(network, b, a).astype(np.float64))
    lower[:, 1] *= -1
    return possible_lines(Bounds(upper, lower))


class _Packets(Struct):
    """Packets that constrain the lines: `delay = residual - theta_b(receive) + theta_a(send)`."""

    a: int
    b: int
    send_s: Floats
    receive_s: Floats
    residual_ns: Floats


def _constraining(network: _Network) -> list[_Packets]:
    chosen = []
    for (a, b), way in network.directions.items():
        residual = _residuals(network, a, b).astype(np.float64)
        hull = lowest_points(way.send_ns / NS_PER_S, residual)
        at_receive = hull[:, 0] + (hull[:, 1] + network.rough_ns[b] - network.rough_ns[a]) / NS_PER_S
        chosen.append(_Packets(a, b, hull[:, 0], at_receive, hull[:, 1]))
    return chosen


def _solve_lines(network: _Network) -> tuple[Floats, Floats, bool]:
    """Skew (ppb, whole) and residual offset (ns, at each line's first stamp) of each line; whether all packets fit."""
    packets = _constraining(network)
    count = len(network.lines)
    if not packets:
        return np.zeros(count), np.zeros(count), True
    for _ in range(MOST_ROUNDS):
        lines, fits = _best_lines(network, packets, None)
        skews = np.rint(lines[count:])
        lines, fits = _best_lines(network, packets, skews)
        violated = _violations(network, lines[:count], skews) if fits else []
        if not violated:
            break
        packets += violated
    return skews, lines[:count], fits


def _best_lines(network: _Network, packets: list[_Packets], skews: Floats | None) -> tuple[Floats, bool]:
    """Offsets and skews with the widest margins; if no line fits all packets, those with the least violation.

    A pair with few packets has room for a wide margin, and the widest sum of all may be one that gives up the margin of
    a pair with many, although lines fit all packets. Then margins below 0 are ruled out, and each counts as a share of
    the room that its pair has.

    Where the solver finds none (a clock jumps by years, more often than `clock_steps` follows), the rough alignment.
    """
    count = len(network.lines)
    edges = sorted({(min(p.a, p.b), max(p.a, p.b)) for p in packets})
    margin_of = {edge: 2 * count + index for index, edge in enumerate(edges)}
    size = 3 * count + len(edges)  # offsets, skews, margins, absolute skews
    span = np.array([line.last_ns - line.first_ns for line in network.lines], dtype=np.float64)
    costs = np.zeros(size)
    costs[2 * count : 2 * count + len(edges)] = -1.0
    costs[2 * count + len(edges) :] = SKEW_PRICE * np.maximum(span, 1.0) / NS_PER_S
    lower, upper = np.full(size, -np.inf), np.full(size, np.inf)
    upper[count : 2 * count] = MAX_SKEW_PPB if skews is None else skews
    lower[count : 2 * count] = -MAX_SKEW_PPB if skews is None else skews
    lower[2 * count + len(edges) :] = 0.0
    for host in network.reference:
        lower[[host, count + host]] = upper[[host, count + host]] = 0.0
    program = LinearProgram(costs, lower, upper, *_constraints(packets, margin_of, size, count))
    margins = slice(2 * count, 2 * count + len(edges))
    found = program.solve(MOST_TURNS * size)
    if found is None or np.abs(found).max() > MOST_OFFSET_NS:  # jumps by decades are beyond its numbers
        return np.zeros(2 * count), False
    if (found[margins] >= LEAST_MARGIN_NS).all():
        return found[: 2 * count], True
    fitting = _with_no_margin_below_0(program, margins, _rooms(network, edges)).solve(MOST_TURNS * size)
    return (found if fitting is None else fitting)[: 2 * count], fitting is not None


def _with_no_margin_below_0(program: LinearProgram, margins: slice, rooms: Floats) -> LinearProgram:
    """The same program, but that rules out margins below 0, and seeks the widest as shares of their pairs' rooms."""
    lower, costs = program.lower.copy(), program.costs.copy()
    lower[margins] = 0.0
    costs[margins] = -rooms.mean() / rooms
    return replace(program, costs=costs, lower=lower)


def _rooms(network: _Network, edges: list[tuple[int, int]]) -> Floats:
    """For each pair the sum of the smallest delays of both directions, which no offset changes; at least 1 ns."""
    least = {way: residuals.min() for way in network.directions if len(residuals := _residuals(network, *way))}
    rooms = [least.get((a, b), 0) + least.get((b, a), 0) for a, b in edges]
    return np.maximum(np.array(rooms, dtype=np.float64), 1.0)


def _constraints(
    packets: list[_Packets], margin_of: dict[tuple[int, int], int], size: int, count: int
) -> tuple[Places, Places, Floats, Floats]:
    """margin - theta_a(send) + theta_b(receive) <= residual, and |skew| as a variable of its own.

    Returns: rows, columns and values of the matrix; the limits.
    """
    rows, columns, values, limits = [], [], [], []
    row = 0
    for p in packets:
        n = len(p.send_s)
        index = np.arange(row, row + n)
        one = np.ones(n)
        margin = np.full(n, margin_of[(min(p.a, p.b), max(p.a, p.b))])
        for column, value in (
            (margin, one),
            (np.full(n, p.a), -one),
            (np.full(n, count + p.a), -p.send_s),
            (np.full(n, p.b), one),
            (np.full(n, count + p.b), p.receive_s),
        ):
            rows.append(index)
            columns.append(column)
            values.append(value)
        limits.append(p.residual_ns)
        row += n
    for host in range(count):
        for sign in (1.0, -1.0):
            rows.append(np.array([row, row]))
            columns.append(np.array([count + host, size - count + host]))
            values.append(np.array([sign, -1.0]))
            limits.append(np.zeros(1))
            row += 1
    return np.concatenate(rows), np.concatenate(columns), np.concatenate(values), np.concatenate(limits)


def _violations(network: _Network, offsets: Floats, skews: Floats) -> list[_Packets]:
    """For each direction the packet that the lines put furthest before its sending, if any."""
    worst = []
    for (a, b), way in network.directions.items():
        residual = _residuals(network, a, b).astype(np.float64)
        send_s, receive_s = way.send_ns / NS_PER_S, way.receive_ns / NS_PER_S
        delay = residual + offsets[a] + skews[a] * send_s - offsets[b] - skews[b] * receive_s
        index = int(delay.argmin())
        if delay[index] < LEAST_MARGIN_NS:
            worst.append(_Packets(a, b, send_s[[index]], receive_s[[index]], residual[[index]]))
    return worst


class _PairBound(Struct, frozen=True):
    """How far the solution for a pair may be off, and likely is, at knots of host a's time (s, ascending)."""

    knots_s: Floats
    uncertainty_ns: Floats
    likely_error_ns: Floats


def _pair_uncertainties(
    network: _Network, polygons: dict[tuple[int, int], Polygon], offsets: Floats, skews: Floats
) -> dict[tuple[int, int], _PairBound]:
    bounds = {}
    for (a, b), polygon in polygons.items():
        way = network.directions[(a, b)]
        knots = np.linspace(0.0, (network.lines[a].last_ns - network.lines[a].first_ns) / NS_PER_S, 33)
        shift_s = (network.rough_ns[b] - network.rough_ns[a]) / NS_PER_S
        solved = offsets[b] + skews[b] * (knots + shift_s) - offsets[a] - skews[a] * knots
        if polygon.empty:
            least = _residuals(network, a, b).min() if len(way.send_ns) else 0
            widest = np.full_like(knots, abs(float(least)) + _spread(network, a, b))
            bounds[(a, b)] = _PairBound(knots, widest, widest)
            continue
        low, high = polygon.extent(knots)
        widest = np.maximum(np.maximum(high - solved, solved - low), 0.0)
        line = Line(float(solved[0]), float(skews[b] - skews[a]))
        likely = likely_errors(_packets_between(network, a, b), line, knots, widest)
        bounds[(a, b)] = _PairBound(knots, widest, likely)
    return bounds


def _packets_between(network: _Network, a: int, b: int) -> PacketsBetween:
    """All hops of a pair, in both directions, by a's time; values are residuals to the rough alignment."""
    there, back = network.directions[(a, b)], network.directions[(b, a)]
    return PacketsBetween(
        side_of(there.send_ns / NS_PER_S, _residuals(network, a, b), 1),
        side_of(back.receive_ns / NS_PER_S, _residuals(network, b, a), -1),
        there.tick_ns,
    )


def _spread(network: _Network, a: int, b: int) -> float:
    """Range of all bounds of a pair that no line fits: its clocks were that far apart at one time or another."""
    upper, lower = _residuals(network, a, b), -_residuals(network, b, a)
    return float(max(upper.max(), lower.max()) - min(upper.min(), lower.min()))


def _line_uncertainties(network: _Network, pairs: dict[tuple[int, int], _PairBound]) -> dict[int, float]:
    """Of each line against the trace's clock: its pair's bound, or the sum along the surest way through other hosts.

    Lines that no traffic joins to the reference are left out.
    """
    weights = {pair: float(bound.uncertainty_ns.max()) for pair, bound in pairs.items()}
    return LineGraph((network.main_reference,), weights).least_sums(network.main_reference, weights)


def _line_likely_errors(network: _Network, pairs: dict[tuple[int, int], _PairBound]) -> dict[int, float]:
    """Of each line against the trace's clock: errors of different pairs are independent, so their squares add up."""
    weights = {pair: float(bound.likely_error_ns.max()) ** 2 for pair, bound in pairs.items()}
    sums = LineGraph((network.main_reference,), weights).least_sums(network.main_reference, weights)
    return {line: total**0.5 for line, total in sums.items()}


def _clock_table(
    network: _Network,
    skews: Floats,
    offsets: Floats,
    uncertainty: dict[int, float],
    likely: dict[int, float],
    consistent: bool,
) -> pa.Table:
    method = "hull" if consistent else "inconsistent"
    rows = []
    for index, line in enumerate(network.lines):
        base = line.first_ns - network.lines[network.reference[network.group[index]]].first_ns
        rows.append(
            {
                "host": line.host,
                "from_host_ns": line.first_ns,
                "to_host_ns": line.last_ns,
                "from_frame": line.first_frame,
                "to_frame": line.last_frame,
                "offset_ns": _in_column(base + network.rough_ns[index] + round(offsets[index])),
                "skew_ppb": int(skews[index]),
                "uncertainty_ns": _whole_ns(uncertainty[index]) if index in uncertainty else None,
                "likely_error_ns": _whole_ns(min(likely[index], uncertainty[index])) if index in likely else None,
                "reference": index == network.main_reference,
                "method": method if index in uncertainty else "none",
            }
        )
    return pa.Table.from_pylist(rows, CLOCKS)


def _in_column(offset_ns: int) -> int:
    """The offset, or what of it a column holds: clocks that jump by decades have none that means anything."""
    return max(-MOST_OFFSET_NS, min(offset_ns, MOST_OFFSET_NS))


def _whole_ns(uncertainty_ns: float) -> int:
    """At least so much, as a column holds it."""
    return min(int(np.ceil(uncertainty_ns)), MOST_OFFSET_NS)


def _pair_table(
    network: _Network, pairs: dict[tuple[int, int], _PairBound], offsets: Floats, skews: Floats
) -> pa.Table:
    parts = [pl.DataFrame(_empty_pairs())]
    for (a, b), bound in pairs.items():
        elapsed_ns = bound.knots_s * NS_PER_S
        reference = network.lines[network.reference[network.group[a]]]
        shift = _in_column(reference.first_ns - network.rough_ns[a] - round(offsets[a]))
        at = np.rint(elapsed_ns - skews[a] * bound.knots_s).astype(np.int64) + shift
        for send, receive in ((a, b), (b, a)):
            ends = {"send_host": network.lines[send].host, "receive_host": network.lines[receive].host}
            own_ns = bound.uncertainty_ns + network.directions[(a, b)].tick_ns  # each hop's two stamps are cut, too
            likely_ns = likely_with_ticks(bound.likely_error_ns, network.directions[(a, b)].tick_ns)
            part = pl.DataFrame({"at_trace_ns": at, "uncertainty_ns": own_ns, "likely_error_ns": likely_ns})
            parts.append(part.select(*(pl.lit(name).alias(end) for end, name in ends.items()), pl.all()))
    return pl.concat(parts).to_arrow()


def _empty_pairs() -> pa.Table:
    ends = {"send_host": pl.String, "receive_host": pl.String, "at_trace_ns": pl.Int64}
    return pl.DataFrame(schema=ends | {"uncertainty_ns": pl.Float64, "likely_error_ns": pl.Float64}).to_arrow()
