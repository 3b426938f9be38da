"""Error of the clocks' alignment against the error bar it states: `python -m benchmarks.clock_error [FOLDER]`.

Many simulated pairs of hosts: paths up to a hundred times longer one way than the other, offsets to a day, skews to 200
ppm, steps. For each hop the error of its one-way delay is known. Prints how often the bar holds, and draws error over
bar: every point must be below the diagonal. The picture goes to FOLDER (docs/images), drawn by Chromium.
"""

import sys
from pathlib import Path

import numpy as np
import plotly.graph_objects as go

from collector.clocks.alignment import align
from collector.clocks.evidence import ways_of
from collector.clocks.solve import solve
from testkit.chromium import chromium
from testkit.clock_traffic import DAY_NS, SECOND_NS, SkewedClock, Traffic, simulate_hops

TRIALS = 300
HOPS_SHOWN = 20
SPAN_S = 5.0


def main() -> None:
    """Measure, print and draw."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images")
    random = np.random.default_rng(20)
    symmetric, asymmetric = (_trials(random, worst) for worst in (1.0, 100.0))
    for name, (error, bound) in (("symmetric paths", symmetric), ("asymmetric paths", asymmetric)):
        held = 100 * np.mean(error <= bound)
        print(f"{name}: {TRIALS} pairs of hosts, {len(error):,} hops; the bar holds for {held:.3f} %;", end=" ")
        print(f"error {np.median(error):,.0f} ns (median), bar {np.median(bound):,.0f} ns (median)")
    _draw(folder / "clock-error.png", symmetric, asymmetric)


def _trials(random: np.random.Generator, worst: float) -> tuple[np.ndarray, np.ndarray]:
    """Error and stated uncertainty (ns) of every hop of all trials."""
    errors, bounds = [], []
    for seed in range(TRIALS):
        there = int(10 ** random.uniform(3, 6))
        back = int(there * worst ** random.uniform(-1, 1))
        step = (int(2.5 * SECOND_NS), int(random.choice([0, 0, 50_000_000, -50_000_000])))
        wrong = SkewedClock(int(random.integers(-DAY_NS, DAY_NS)), int(random.integers(-200_000, 200_000)), step)
        hops = simulate_hops(
            {"a": SkewedClock(), "b": wrong}, [("a", "b")], span_s=SPAN_S, there_ns=there, back_ns=back, seed=seed
        )
        error, bound = _errors(hops)
        errors.append(error)
        bounds.append(bound)
    return np.concatenate(errors), np.concatenate(bounds)


def _errors(given: Traffic) -> tuple[np.ndarray, np.ndarray]:
    aligned = align(given.hops, solve(ways_of(given.hops), given.windows))
    true_ns = given.received_ns - given.sent_ns
    return np.abs(aligned["one_way_delay_ns"].to_numpy() - true_ns), aligned["uncertainty_ns"].to_numpy()


def _draw(path: Path, symmetric: tuple[np.ndarray, np.ndarray], asymmetric: tuple[np.ndarray, np.ndarray]) -> None:
    figure = go.Figure()
    for name, colour, symbol, (error, bound) in (
        ("paths up to 100 times longer one way", "#C27C00", "circle-open", asymmetric),
        ("symmetric paths", "#0072B2", "cross", symmetric),
    ):
        every = slice(None, None, 600 // HOPS_SHOWN)
        points = {"x": bound[every] / 1000, "y": np.maximum(error[every], 1) / 1000}
        figure.add_scatter(**points, mode="markers", name=name, marker={"color": colour, "symbol": symbol, "size": 4})
    ends = [0.5, 1e5]
    figure.add_scatter(x=ends, y=ends, mode="lines", name="error = bar", line={"color": "#111827", "dash": "dash"})
    figure.update_layout(
        title="Error of one-way delays against the error bar stated with them",
        template="plotly_white",
        xaxis={"type": "log", "title": "stated uncertainty, µs"},
        yaxis={"type": "log", "title": "error, µs (below 1 ns drawn at 1 ns)"},
        legend={"x": 0.01, "y": 0.99},
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 900, "height": 600})
        page.set_content(figure.to_html(include_plotlyjs=True))
        page.wait_for_selector(".main-svg .trace")
        page.screenshot(path=str(path))


if __name__ == "__main__":
    main()
