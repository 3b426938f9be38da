"""What the traffic between two hosts says of their clocks: a polygon of possible (offset, skew).

Take host A's clock for time and write theta(t) = clock of B - clock of A. A packet sent by A at t_A and received by B
at t_B shows theta <= t_B - t_A, for its delay was not negative; one from B to A shows theta >= t_B - t_A. Over a while
in which neither clock was stepped, theta is a line, offset + skew * t, and each packet forbids a half plane of lines:

    theta |   upper bounds (A to B)      v     v  v v
          |  - - - - - - - - - - - - - - - - - - - - - -   any line between them is possible
          |   lower bounds (B to A)      ^  ^     ^
          +------------------------------------------- t

What is left is a convex polygon in (offset, skew). Its extent at a time t bounds theta(t): the error bar, which holds
however asymmetric the paths are. If nothing is left, a clock was stepped. The guess is elsewhere
(`collector.clocks.solve`).

Source: the lower hull of delays as in Moon, Skelly, Towsley, "Estimation and removal of clock skew from network delay
measurements" (INFOCOM 1999), in both directions; RFC 2330 §10. Units: ns for offset and bounds, s for t, ns/s (= ppb)
for skew.
"""

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from collector import _core

Floats = NDArray[np.float64]

MAX_SKEW_PPB = 500_000.0
"""Of one clock against true time: RFC 5905 §7.2 takes 500 ppm as the tolerance."""
MAX_HULL_POINTS = 32
"""Hull vertices kept: the polygon is found by crossing all pairs of them."""
TOUCHING_NS = -1.0
"""Bounds that cross by less than that touch."""
SEARCH_STEPS = 64
"""Of a golden-section search: 2e6 ppb narrowed to below 1e-6."""


class Bounds(Struct, frozen=True):
    """Points that theta may not be above (`upper`) and below (`lower`), each of shape (n, 2): s, ns."""

    upper: Floats
    lower: Floats


class Polygon(Struct, frozen=True):
    """The possible (offset ns, skew ppb), as vertices, shape (n, 2); empty if no line fits."""

    vertices: Floats

    @property
    def empty(self) -> bool:
        """Whether no line is possible."""
        return len(self.vertices) == 0

    def extent(self, times_s: Floats) -> tuple[Floats, Floats]:
        """The least and the greatest possible theta at each time, in ns; shapes as `times_s`."""
        theta = self.vertices[:, 0] + np.multiply.outer(times_s, self.vertices[:, 1])
        return theta.min(axis=-1), theta.max(axis=-1)


def lowest_points(times_s: Floats, values: Floats) -> Floats:
    """The lower hull of points in time, at most `MAX_HULL_POINTS` of it; shape (k, 2), by time.

    A line below the hull is below all points.
    """
    hull = np.column_stack([times_s, values])[lower_hull_places(times_s, values)]
    if len(hull) > MAX_HULL_POINTS:
        kept = np.argsort(hull[:, 1])[: MAX_HULL_POINTS - 2]
        hull = hull[np.unique(np.concatenate([kept, [0, len(hull) - 1]]))]
    return hull


def lower_hull_places(times_s: Floats, values: Floats) -> NDArray[np.int64]:
    """Which points are on the lower hull, by time; shape (k,). Cost: linear for points in order of time."""
    return _core.lower_hull(np.ascontiguousarray(times_s), np.ascontiguousarray(values))


def possible_lines(bounds: Bounds, max_skew_ppb: float = 2 * MAX_SKEW_PPB) -> Polygon:
    """All lines below the upper points, above the lower ones, and not steeper than two clocks can drift apart.

    Cost: the square of the number of points. Unbounded (so empty here) without points on both sides.
    """
    if not len(bounds.upper) or not len(bounds.lower):
        return Polygon(np.empty((0, 2)))
    # Each half plane as a . (offset, skew) <= b.
    skew = np.array([[0.0, 1.0], [0.0, -1.0]])
    a = np.concatenate([_line(bounds.upper), -_line(bounds.lower), skew])
    b = np.concatenate([bounds.upper[:, 1], -bounds.lower[:, 1], [max_skew_ppb, max_skew_ppb]])
    first, second = np.triu_indices(len(b), k=1)
    determinant = a[first, 0] * a[second, 1] - a[first, 1] * a[second, 0]
    crossing = np.abs(determinant) > 1e-12
    first, second, determinant = first[crossing], second[crossing], determinant[crossing]
    offset = (b[first] * a[second, 1] - b[second] * a[first, 1]) / determinant
    slope = (a[first, 0] * b[second] - a[second, 0] * b[first]) / determinant
    corners = np.column_stack([offset, slope])
    slack = b - corners @ a.T
    tolerance = 1e-10 * np.abs(b) + 1e-3  # rounding of the crossing itself: far below 1 ns
    return Polygon(corners[(slack >= -tolerance).all(axis=1)])


def _line(points: Floats) -> Floats:
    return np.column_stack([np.ones(len(points)), points[:, 0]])


def fits_line(bounds: Bounds, max_skew_ppb: float = 2 * MAX_SKEW_PPB) -> bool:
    """Whether any line is possible: true without points on both sides.

    The room between upper and lower points is a concave function of the skew; its peak is searched for. Cost: linear.
    """
    if not len(bounds.upper) or not len(bounds.lower):
        return True
    (upper_s, upper_ns), (lower_s, lower_ns) = bounds.upper.T, bounds.lower.T
    tight, reach = int(upper_ns.argmin()), int(lower_ns.argmax())
    room = float(upper_ns[tight] - lower_ns[reach])
    if room >= 0:
        return True
    if room + max_skew_ppb * abs(float(upper_s[tight] - lower_s[reach])) < TOUCHING_NS:
        return False  # these two points alone are too far apart for any line
    low, high = -max_skew_ppb, max_skew_ppb
    ratio = (np.sqrt(5.0) - 1) / 2
    for _ in range(SEARCH_STEPS):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        rooms = [(upper_ns - skew * upper_s).min() - (lower_ns - skew * lower_s).max() for skew in (left, right)]
        if max(rooms) >= 0:
            return True
        low, high = (low, right) if rooms[0] > rooms[1] else (left, high)
    return max(rooms) >= TOUCHING_NS
