"""How far an analysis is: what stages say, and what is shown of it."""

import io
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from collector.analysis import AnalysisOptions, analyse
from collector.commands import replay
from collector.commands.progress_text import DisplayedProgress, figures, progress_display, time_left
from collector.decode.sources import host_sources
from collector.execution.progress import Stage

CAPTURES = Path(__file__).parents[3] / "captures" / "bench-2-puts"


@dataclass
class Noted:
    """A progress that keeps what is reported to it."""

    stages: list[str] = field(default_factory=list)
    packets: dict[str, int] = field(default_factory=dict)
    shares: dict[str, float] = field(default_factory=dict)

    def begin(self, stage: Stage) -> None:
        self.stages.append(stage)

    def advance(self, packets: int, share: float) -> None:
        stage = self.stages[-1]
        self.packets[stage] = self.packets.get(stage, 0) + packets
        self.shares[stage] = self.shares.get(stage, 0.0) + share

    def end(self) -> None:
        self.stages.append("end")


@dataclass
class Display:
    """Notes what it is to show."""

    left: list[float | None] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    ended: list[tuple[str, int, float]] = field(default_factory=list)

    def update(self, stage: Stage, packets: int, seconds: float, share: float, left_seconds: float | None) -> None:
        self.left.append(left_seconds)
        self.shares.append(share)

    def stage_ended(self, stage: Stage, packets: int, seconds: float) -> None:
        self.ended.append((stage, packets, seconds))


def test_each_stage_says_how_many_packets_it_did_and_comes_to_its_end(tmp_path: Path) -> None:
    noted = Noted()
    options = AnalysisOptions(partition_bits=2)
    info = analyse(host_sources([str(CAPTURES)]), str(tmp_path / "trace"), options=options, progress=noted)
    assert noted.stages == [*Stage, "end"]
    assert noted.packets[Stage.READ] == sum(host.packets_count for host in info.hosts) > 0
    events_count = sum(host.events_count for host in info.hosts)
    assert noted.packets[Stage.PAIR] == noted.packets[Stage.REBUILD] == events_count
    assert list(noted.shares.values()) == pytest.approx([1, 1, 1])


def test_the_time_left_is_what_is_left_at_the_pace_so_far() -> None:
    now, display = [0.0], Display()
    shown = DisplayedProgress(display, lambda: now[0])
    shown.begin(Stage.READ)
    now[0] = 0.5
    shown.advance(1000, 0.5)
    assert display.left[-1] is None
    now[0] = 3.0
    shown.advance(1000, 0.5)
    assert display.shares[-1] == pytest.approx(0.3)
    assert display.left[-1] == pytest.approx(7.0)
    shown.begin(Stage.PAIR)
    now[0] = 4.0
    shown.advance(2000, 1.0)
    shown.end()
    assert display.ended == [(Stage.READ, 2000, 3.0), (Stage.PAIR, 2000, 1.0)]
    assert display.left[-1] == pytest.approx(4 * 0.4 / 0.6)


def test_figures() -> None:
    assert figures(1_000_000, 2.0) == "1,000,000 packets in 2.000 s, 500,000/s"
    assert figures(1, 0.0).startswith("1 packet in ")
    assert figures(0, 2.0) == "2.000 s"
    assert [time_left(seconds) for seconds in (0.4, 7.2, 200.0)] == ["", "about 7 s left", "about 3 min left"]


@pytest.mark.parametrize("options", [(), ("--quiet",)])
def test_elsewhere_than_on_a_terminal_a_line_a_stage(options: tuple[str, ...], tmp_path: Path) -> None:
    done = CliRunner().invoke(replay.command, ["-o", str(tmp_path / "trace"), *options, str(CAPTURES)])
    assert done.exit_code == 0, done.output
    lines = done.stderr.splitlines()
    expected = [] if options else [f"tracer: {stage}: " for stage in Stage]
    assert len(lines) == len(expected)
    assert all(line.startswith(start) for line, start in zip(lines, expected, strict=True))
    assert "reading captures" not in done.stdout


def test_on_a_terminal_one_line_that_goes_when_all_is_done() -> None:
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=120)
    with progress_display(quiet=False, console=console) as progress:
        progress.begin(Stage.READ)
        progress.advance(5, 1.0)
        progress.begin(Stage.PAIR)
        progress.end()
    assert "pairing packets" in written.getvalue()
    assert written.getvalue().endswith("\x1b[1A\x1b[2K") or "\x1b[2K" in written.getvalue()[-12:]
