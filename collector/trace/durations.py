"""Formats durations, in the same way for the report, the viewer and the demo."""

_UNITS = ((1_000_000_000, "s", 3), (1_000_000, "ms", 1), (1_000, "µs", 1))


def in_words(duration_ns: int) -> str:
    """`412.3 ms`, `1.250 s`, `85.0 µs`, `640 ns`."""
    for unit_ns, name, decimals in _UNITS:
        if abs(duration_ns) >= unit_ns:
            return f"{duration_ns / unit_ns:.{decimals}f} {name}"
    return f"{duration_ns} ns"


def with_uncertainty(duration_ns: int, uncertainty_ns: int, likely_error_ns: int | None = None) -> str:
    """`412.3 ms ± 4.0 µs`, or `412.3 ms ± 0.5 µs (at most 4.0 µs)` with a likely error (at 95 %) that is less than the
    bound; only the first part without an uncertainty."""
    if not uncertainty_ns:
        return in_words(duration_ns)
    if likely_error_ns is None or likely_error_ns >= uncertainty_ns:
        return f"{in_words(duration_ns)} ± {in_words(uncertainty_ns)}"
    return f"{in_words(duration_ns)} ± {in_words(likely_error_ns)} (at most {in_words(uncertainty_ns)})"


def share(part_ns: int, whole_ns: int) -> str:
    """`73 %`; `<1 %` for a positive share that rounds to 0."""
    if part_ns and part_ns * 200 < whole_ns:
        return "<1 %"
    return f"{round(100 * part_ns / whole_ns) if whole_ns else 0} %"
