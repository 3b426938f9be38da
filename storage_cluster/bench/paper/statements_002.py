"""Document 002's sentences beside what was found here."""

from collections.abc import Mapping, Sequence

from storage_cluster.bench.paper.client_002 import READ, WRITE
from storage_cluster.bench.paper.experiment_002 import (
    LEVELS,
    SCALE,
    STREAMS,
    STRIPE_MB,
    Done,
    device_windows,
    is_busy,
    is_seen_by_second,
    mean_throughput,
    windows,
)
from storage_cluster.bench.paper.statements import Statement

WINDOWS_MIN = 0.99
"""In so many of the one-second windows each client shall have at least what it reserved."""
NEAR = 0.9
_STANDARD = 0
Levels = dict[int, dict[int, float]]
"""The document's MB/s to streams to MB/s found."""


def levels(done: Mapping[str, Done], direction: str, size_bytes: int) -> Levels:
    """Figures 4 and 5: mean throughput by reservation and streams."""
    found: Levels = {}
    for rate, _ in LEVELS[direction]:
        points = {streams: done.get(f"{direction}-{rate}-{streams}") for streams in STREAMS}
        means = {
            streams: mean_throughput(each.outcomes["A"], size_bytes)
            for streams, each in points.items()
            if each is not None
        }
        if means:
            found[rate] = means
    return found


def kept_share(done: Done, direction: str) -> float:
    """The share of all windows of all clients with a reservation in which it was kept."""
    counts = [
        mb_per_s >= each.reserved_mb_per_s
        for name, each in done.outcomes.items()
        if each.reserved_mb_per_s
        for mb_per_s in windows(done, name, direction)
    ]
    return sum(counts) / len(counts) if counts else 0.0


def device_share(point: Done, direction: str) -> tuple[float, int]:
    """Of the windows in which the device was busy, how many gave a client what it reserved, less a stripe; how many.

    Transfers are whole stripes, and one that spans two windows is counted in the second.
    """
    counts = [
        window.get(name, 0.0) >= each.reserved_mb_per_s - STRIPE_MB
        for window in device_windows(point)
        if is_busy(window, direction)
        for name, each in point.outcomes.items()
        if each.reserved_mb_per_s
    ]
    return (sum(counts) / len(counts) if counts else 0.0), len(counts)


def _why_not_kept(point: Done, direction: str) -> str:
    """What the device did in the windows in which a client got less than it reserved."""
    device = device_windows(point)
    idle = later = less = 0
    for name, each in point.outcomes.items():
        for number, mb_per_s in enumerate(windows(point, name, direction)):
            if mb_per_s >= each.reserved_mb_per_s:
                continue
            is_given = device[number].get(name, 0.0) >= each.reserved_mb_per_s - STRIPE_MB
            idle += not is_busy(device[number], direction)
            later += is_busy(device[number], direction) and is_given
            less += is_busy(device[number], direction) and not is_given
    return (
        f"of {idle + later + less} such windows {idle} are seconds in which the device was idle in part (others used "
        f"this machine's two processors), in {later} the device gave it to within a stripe, in {less} it gave less"
    )


def statements(done: Mapping[str, Done], size_bytes: int) -> list[Statement]:
    """The document's sentences and the issue's one about windows, with verdicts."""
    found = []
    for direction, figure, what in ((READ, 4, "download"), (WRITE, 5, "upload")):
        by_level = levels(done, direction, size_bytes)
        found += _of_streams(by_level, figure, what)
    for direction, figure, what in ((READ, 6, "downloads"), (WRITE, 7, "uploads")):
        found += _of_five(done, direction, figure, what)
    return found


def _of_streams(by_level: Levels, figure: int, what: str) -> list[Statement]:
    if not by_level:
        return []
    standard = {rate: means[_STANDARD] for rate, means in by_level.items() if _STANDARD in means}
    text = ", ".join(f"{mean:.1f} of {rate / SCALE:g} MB/s" for rate, mean in standard.items())
    is_low = all(mean < NEAR * rate / SCALE for rate, mean in standard.items())
    why = "" if is_low else "one request's transfers are read and sent in turn, and here that is fast enough"
    made = [
        Statement(
            f"figure {figure}: one request for the whole object gets far less than was reserved", text, is_low, why
        )
    ]
    best = {
        rate: max((mean, streams) for streams, mean in means.items() if streams) for rate, means in by_level.items()
    }
    text = "; ".join(
        f"{rate / SCALE:g} reserved: {best_mean:.1f} with {streams}, {100 * best_mean / rate * SCALE:.0f} %"
        for rate, (best_mean, streams) in best.items()
    )
    if figure == 4:
        agrees = all(mean >= NEAR * rate / SCALE for rate, (mean, _) in best.items())
        return [*made, Statement("figure 4: with more streams a download reaches over 90 % of it", text, agrees)]
    agrees = all(mean < NEAR * rate / SCALE for rate, (mean, _) in best.items())
    why = (
        ""
        if agrees
        else "no process between gateway and storage servers puts the parts in order: each goes its own way"
    )
    return [*made, Statement("figure 5: with more streams an upload rises to about 60 % of it", text, agrees, why)]


def _of_five(done: Mapping[str, Done], direction: str, figure: int, what: str) -> list[Statement]:
    made = []
    for setup, beside in (("plain", ""), ("greedy", ", beside a client that reserved nothing and asks with 8 streams")):
        point = done.get(f"five-{direction}-{setup}")
        if point is None:
            continue
        means = five_means(point, direction)
        text = ", ".join(f"{name} {means[name]:.1f} of {rate:g}" for name, rate in _reservations_of(point).items())
        agrees = all(means[name] >= rate for name, rate in _reservations_of(point).items())
        said = f"figure {figure}: each of five clients gets what it reserved or more, in {what} at once{beside}"
        made.append(Statement(said, f"{text} MB/s", agrees))
        share, lowest = kept_share(point, direction), _lowest(point, direction)
        said = f"(ours) … in at least {100 * WINDOWS_MIN:.0f} % of one-second windows{beside}"
        why = "" if share >= WINDOWS_MIN else _why_not_kept(point, direction)
        made.append(Statement(said, f"{100 * share:.1f} %; {lowest}", share >= WINDOWS_MIN, why))
        share, count = device_share(point, direction)
        said = f"(ours) … of the device, in seconds in which it was busy, within one stripe{beside}"
        if count:
            made.append(Statement(said, f"{100 * share:.1f} % of {count} windows", share >= WINDOWS_MIN))
    return made


def five_means(point: Done, direction: str) -> dict[str, float]:
    """Each client's mean over the windows, MB/s."""
    found = {name: windows(point, name, direction) for name in point.outcomes}
    return {name: sum(values) / len(values) if values else 0.0 for name, values in found.items()}


def _reservations_of(point: Done) -> dict[str, float]:
    return {name: each.reserved_mb_per_s for name, each in point.outcomes.items() if each.reserved_mb_per_s}


def _lowest(point: Done, direction: str) -> str:
    shares = [
        (min(windows(point, name, direction), default=0.0) / rate, name)
        for name, rate in _reservations_of(point).items()
    ]
    share, name = min(shares)
    return f"the worst window of all: {name} with {100 * share:.0f} % of what it reserved"


def window_rows(done: Mapping[str, Done]) -> Sequence[str]:
    """Figures 6 and 7 in figures, as rows of Markdown."""
    rows = [
        "| | client | reserved, MB/s | mean, MB/s | lowest window | windows | with what it reserved |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    for direction, figure in ((READ, 6), (WRITE, 7)):
        for setup in ("none", "plain", "greedy"):
            point = done.get(f"five-{direction}-{setup}")
            if point is None:
                continue
            means = five_means(point, direction)
            for name, each in point.outcomes.items():
                found = windows(point, name, direction)
                kept = sum(value >= each.reserved_mb_per_s for value in found)
                share = f"{100 * kept / len(found):.1f} %" if each.reserved_mb_per_s and found else ""
                reserved = f"{each.reserved_mb_per_s:g}" if each.reserved_mb_per_s else "none"
                low = f"{min(found, default=0.0):.2f}" if is_seen_by_second(point, name, direction) else ""
                cells = (f"figure {figure}, {setup}", name, reserved, f"{means[name]:.2f}", low, str(len(found)), share)
                rows.append(f"| {' | '.join(cells)} |")
    return rows
