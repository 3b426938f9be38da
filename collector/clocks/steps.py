"""Where a clock was stepped (or its rate changed): the frame of a host from which on its clock follows another line.

While no clock is stepped, some line fits all packets between two hosts (`collector.clocks.bounds`). Packets are taken
in the order that a host captured them, not by its stamps, which a step puts out of order. The longest beginning that a
line fits ends soon after the step, at the first packet whose direction is the tight one; from there back, as far as one
line fits, the step must lie. In between, each packet fits the line before and the line after, and the place is taken
that makes delays least.

The other pairs show which of two hosts it was: a stepped host breaks all of its own at that place.

Evidence that was thinned shows the place of a step only roughly; then the hops around it are looked at again.

Limits: a step smaller than the channel (about the least round trip) cannot be seen, and is inside the error bar. Two
hosts alone: the differences are right, but which one stepped is by lot.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from collector.clocks.bounds import Bounds, Floats, fits_line, lower_hull_places, lowest_points, possible_lines
from collector.clocks.evidence import Evidence, Ints, Way, Ways, merge_ways

Cuts = dict[str, list[int]]
"""Host to the frames at which a new line begins, ascending."""

Frames = dict[str, list[tuple[int, int]]]
"""For each host, first and last frame of stretches of its capture."""

MOST_STEPS = 256
"""Of all hosts together; a clock that steps more often has no line to speak of."""
LOOK_AHEAD = 256
"""Packets after a break that show where the new line begins, and before it where the old one ends."""
HULL_LEAST_POINTS = 4096
"""With more points, their hull is computed first: that is cheaper."""
MOST_LOOKS = 3
"""At the hops around a step, each at fewer of them: 256^3 stretches are as many as a large capture has packets."""
ARRIVED_TOO_SOON = 1e15
"""Cost (ns) of a packet that a line would have arrive before it was sent: more than any sum of delays."""


class _Course(Struct, frozen=True):
    """What the packets of one pair say, in the order that host `a` captured them: theta(t) <= or >= value."""

    a: str
    b: str
    frame_a: Ints
    frame_b: Ints
    time_s: Floats
    theta_ns: Floats
    upper: NDArray[np.bool_]

    def bounds(self, start: int, end: int) -> Bounds:
        """The packets `start..end` as bounds on a line; of many, the hull."""
        part = slice(start, end)
        points, upper = np.column_stack([self.time_s[part], self.theta_ns[part]]), self.upper[part]
        above, below = points[upper], points[~upper]
        if len(above) > HULL_LEAST_POINTS:
            above = above[lower_hull_places(*above.T)]
        if len(below) > HULL_LEAST_POINTS:
            below = below[lower_hull_places(below[:, 0], -below[:, 1])]
        return Bounds(above, below)

    def fits(self, start: int, end: int) -> bool:
        """Whether one line fits the packets `start..end`."""
        return fits_line(self.bounds(start, end))

    def delays(self, line: Floats, start: int, end: int) -> Floats:
        """Delays of the packets `start..end` were `line` (offset ns, skew ppb) the truth."""
        theta = line[0] + line[1] * self.time_s[start:end]
        delay = np.where(self.upper[start:end], 1, -1) * (self.theta_ns[start:end] - theta)
        return np.where(delay < 0, ARRIVED_TOO_SOON, delay)

    def frames(self, host: str) -> Ints:
        """Frames of the packets at one of the two hosts."""
        return self.frame_a if host == self.a else self.frame_b


class _Break(Struct, frozen=True):
    """Packets `start..low` are on the line before a step, `high..end` on the one after it, between them on either."""

    course: _Course
    start: int
    low: int
    high: int
    end: int

    @property
    def hosts(self) -> tuple[str, str]:
        """The two that the course is of."""
        return self.course.a, self.course.b

    def span(self, host: str) -> tuple[int, int]:
        """Frames of `host` that the step lies between."""
        frames = self.course.frames(host)
        return int(frames[self.low - 1]), int(frames[self.high])

    def costs(self, host: str) -> tuple[Ints, Floats, Floats]:
        """Frames of `host` near the step, and what each packet costs if it is before, and if it is after it.

        Both lines keep to the packets between them, which fit either: a line that few packets after a step bound may
        else rise or fall so steeply that it leaves out the one just ahead of them.
        """
        begin, end = max(self.start, self.low - LOOK_AHEAD), min(self.end, self.high + LOOK_AHEAD)
        old, new = (_middle_line(self.course.bounds(*part)) for part in ((begin, self.high), (self.low, end)))
        before, after = (self.course.delays(line, begin, end) for line in (old, new))
        return self.course.frames(host)[begin:end], before, after


Looks = dict[tuple[int, int], _Break | None]
"""Stretches of a course to the first break of each; `None` where one line fits all."""


class Steps(Struct, frozen=True):
    """Where clocks were stepped: `cuts`, and for each of a host's cuts the frames it must lie between."""

    cuts: Cuts
    between: Frames


def find_steps(ways: Ways) -> Steps:
    """Frames of each host from which on its clock follows another line.

    Cost: for each step, a few tens of line fits for each pair whose stretches it cuts.
    """
    courses = [_course(ways, pair) for pair in ways if pair[0] < pair[1] and pair[::-1] in ways]
    cuts: Cuts = {}
    between: Frames = {}
    looks: list[Looks] = [{} for _ in courses]
    for _ in range(MOST_STEPS):
        looked = (_first_break(course, cuts, known) for course, known in zip(courses, looks, strict=True))
        breaks = [found for found in looked if found is not None]
        if not breaks:
            break
        stepped, evidence = _culprit(breaks, courses, cuts)
        cuts[stepped] = sorted({*cuts.get(stepped, []), _best_frame(evidence, stepped)})
        low, high = zip(*(each.span(stepped) for each in evidence), strict=True)
        between.setdefault(stepped, []).append((min(low), max(high)))
    return Steps(cuts, between)


def refine_steps(evidence: Evidence, parts: Callable[[Frames], Iterable[Ways]]) -> Ways:
    """The hops of `evidence`; if it was thinned, with those around each step that it shows.

    Arguments: `parts` gives, of all hops, those that `hops_near` finds for the given frames, some at a time.
    """
    ways: Ways = evidence.ways()
    for _ in range(MOST_LOOKS):
        between = find_steps(ways).between if evidence.thinned else {}
        if not between:
            break
        evidence = evidence.finer()
        for part in parts(between):
            evidence.add(part)
        ways = merge_ways(ways, evidence.ways())
    return ways


def hops_near(ways: Ways, between: Frames) -> Ways:
    """The hops that one of their hosts saw where its clock may have been stepped."""
    near = {pair: _near(pair, way, between) for pair, way in ways.items()}
    return {pair: way for pair, way in near.items() if len(way.send_ns)}


def _near(pair: tuple[str, str], way: Way, between: Frames) -> Way:
    near = np.zeros(len(way.send_ns), dtype=np.bool_)
    for host, frames in zip(pair, (way.send_frame, way.receive_frame), strict=True):
        for low, high in between.get(host, []):
            near |= (frames >= low) & (frames <= high)
    return way.take(np.flatnonzero(near))


def line_of(frames: Ints, cuts: Sequence[int]) -> Ints:
    """Which line of its host each frame is on, from 0."""
    return np.searchsorted(np.array(cuts, dtype=np.int64), frames, side="right")


def _course(ways: Ways, pair: tuple[str, str]) -> _Course:
    there, back = ways[pair], ways[pair[::-1]]
    frame_a = np.concatenate([there.send_frame, back.receive_frame])
    order = np.argsort(frame_a, kind="stable")
    time_ns = np.concatenate([there.send_ns, back.receive_ns])
    theta = np.concatenate([there.receive_ns - there.send_ns, back.send_ns - back.receive_ns])
    return _Course(
        *pair,
        frame_a[order],
        np.concatenate([there.receive_frame, back.send_frame])[order],
        ((time_ns - time_ns.min()) / 1e9)[order],
        (theta - np.median(theta).astype(np.int64)).astype(np.float64)[order],
        np.repeat([True, False], [len(there.send_ns), len(back.send_ns)])[order],
    )


def _first_break(course: _Course, cuts: Cuts, known: Looks) -> _Break | None:
    """The first step in the course that the cuts do not explain.

    Arguments: `known`, what earlier looks at it found; grows.
    """
    edges = [0, *_edges(course, cuts), len(course.frame_a)]
    for start, end in pairwise(edges):
        if (start, end) not in known:
            known[start, end] = None if course.fits(start, end) else _locate(course, start, end)
        if known[start, end] is not None:
            return known[start, end]
    return None


def _edges(course: _Course, cuts: Cuts) -> list[int]:
    """Packets of a course at which a new line begins, of either host."""
    lines = line_of(course.frame_a, cuts.get(course.a, [])) * (MOST_STEPS + 1)
    lines += line_of(course.frame_b, cuts.get(course.b, []))
    return (np.flatnonzero(np.diff(lines)) + 1).tolist()


def _locate(course: _Course, start: int, end: int) -> _Break:
    """The packets `start..end` fit no line: where the first part ends that does, and the next one begins."""
    good, bad = start, end
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if course.fits(start, middle) else (good, middle)
    high = bad - 1
    until = min(end, high + LOOK_AHEAD)
    while not course.fits(high, until):
        until = high + max(1, (until - high) // 2)
    least, low = start, high
    while least < low:
        middle = (least + low) // 2
        least, low = (least, middle) if course.fits(middle, until) else (middle + 1, low)
    return _Break(course, start, max(low, start + 1), high, until)


def _culprit(breaks: list[_Break], courses: list[_Course], cuts: Cuts) -> tuple[str, list[_Break]]:
    """Which host stepped first, and the breaks that show it: as many of its own pairs as can be.

    A pair shows its first break only, so a step is sure to show in all pairs of its host where no other step is before
    it. What is judged is such a break; in a ring of hosts, others would be put on the wrong host of two. A pair that
    stays on one line is evidence against a host.
    """

    def evidence(host: str, near: _Break) -> list[_Break]:
        low, high = near.span(host)
        own = [each for each in breaks if host in each.hosts]
        return [each for each in own if each.span(host)[0] < high and each.span(host)[1] > low]

    def others(host: str, shown: list[_Break]) -> list[_Course]:
        own = [each for each in courses if host in (each.a, each.b)]
        return [each for each in own if all(each is not one.course for one in shown)]

    def score(candidate: tuple[str, _Break]) -> tuple[bool, int, int, int, str]:
        host, near = candidate
        shown = evidence(host, near)
        silent = others(host, shown)
        against = sum(_stays(each, cuts, host, near.span(host)) for each in silent)
        return not against, len(shown), -against, -len(silent) - len(shown), host

    first = [each for each in breaks if not any(_is_before(other, each) for other in breaks)]
    stepped, near = max(((host, each) for each in first or breaks for host in each.hosts), key=score)
    shown = evidence(stepped, near)
    hidden = (_edge_in(each, cuts, stepped, near.span(stepped)) for each in others(stepped, shown))
    return stepped, shown + [each for each in hidden if each is not None]


def _stays(course: _Course, cuts: Cuts, host: str, span: tuple[int, int]) -> bool:
    """Whether a course without a break in that span of a host's frames is on one line before and after it."""
    frames = course.frames(host)
    if frames.min() > span[0] or frames.max() < span[1]:
        return False
    return _edge_in(course, cuts, host, span) is None


def _edge_in(course: _Course, cuts: Cuts, host: str, span: tuple[int, int]) -> _Break | None:
    """Where a new line begins already in that span of a host's frames: its other host stepped then, too, and the two
    steps show as one."""
    frames, edges = course.frames(host), [0, *_edges(course, cuts), len(course.frame_a)]
    for start, edge, end in zip(edges, edges[1:], edges[2:], strict=False):
        if frames[edge - 1] < span[1] and frames[edge] > span[0]:
            return _Break(course, start, edge, edge, end)
    return None


def _is_before(one: _Break, other: _Break) -> bool:
    """Whether a host that both are of saw all of one before the other."""
    return any(one.span(host)[1] <= other.span(host)[0] for host in one.hosts if host in other.hosts)


def _best_frame(evidence: list[_Break], host: str) -> int:
    """The frame of `host` to begin the new line at, so that delays are least over all pairs that show the step."""
    parts = [each.costs(host) for each in evidence]
    frames, before, after = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(frames, kind="stable")
    before_all = np.concatenate([[0.0], np.cumsum(before[order])])
    after_all = np.concatenate([np.cumsum(after[order][::-1])[::-1], [0.0]])
    low = max(each.span(host)[0] for each in evidence)
    places = np.append(frames[order], frames.max() + 1)
    cost = np.where((places > low) | (places == places.max()), before_all + after_all, np.inf)
    return int(places[int(np.argmin(cost))])


def _middle_line(bounds: Bounds) -> Floats:
    """A line (offset ns, skew ppb) well inside the bounds; level if they are on one side only."""
    if not len(bounds.upper) or not len(bounds.lower):
        of_side = bounds.upper if len(bounds.upper) else bounds.lower
        return np.array([of_side[:, 1].min() if len(bounds.upper) else of_side[:, 1].max(), 0.0])
    lower = lowest_points(bounds.lower[:, 0], -bounds.lower[:, 1])
    lower[:, 1] *= -1
    vertices = possible_lines(Bounds(lowest_points(*bounds.upper.T), lower)).vertices
    return vertices.mean(axis=0) if len(vertices) else np.array([bounds.upper[:, 1].min(), 0.0])
