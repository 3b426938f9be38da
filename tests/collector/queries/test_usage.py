"""What the hosts used, and what else is marked on the time axis."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from collector.queries import NO_LANE, Mark, TraceView, Usage, faults, findings, load_steps, open_trace
from testkit.synthetic_trace import EPOCH_NS, Recipe, write_synthetic_trace
from tests.helpers.bench_folders import STARTED_NS, write_run
from tests.helpers.stored_tables import write_table
from tracer.errors import InputError

STEP_NS = 10_000_000


def samples_table() -> pa.Table:
    """Two hosts and one that is not in the trace, ten samples each; the disk's of one only, over two devices."""
    rows = []
    for number, host in enumerate(("client", "proxy", "stranger")):
        rows += [(host, EPOCH_NS + at * STEP_NS, "cpu_percent", 10.0 * at + number) for at in range(1, 11)]
    rows += [("proxy", EPOCH_NS + STEP_NS, name, 1_000.0) for name in ("read_bytes_per_s", "written_bytes_per_s")]
    rows += [("proxy", EPOCH_NS + STEP_NS, f"sent_bytes_per_s.eth{each}", 500.0) for each in range(2)]
    names = ("host", "host_ns", "metric", "value")
    return pa.table(dict(zip(names, (list(column) for column in zip(*rows, strict=True)), strict=True)))


@pytest.fixture
def trace(tmp_path: Path) -> TraceView:
    """Three uploads, and what two of its hosts used."""
    write_synthetic_trace(tmp_path / "trace", Recipe())
    write_table(str(tmp_path / "trace"), "samples", samples_table())
    return open_trace(str(tmp_path / "trace"))


def test_each_bin_shows_its_busiest_host_and_the_mean(trace: TraceView) -> None:
    usage = Usage(trace)
    assert usage.names == ("CPU", "disk", "network")
    cpu, disk, network = usage.strips(0, 12 * STEP_NS, 12)
    proxy = [lane.host for lane in trace.lanes].index("proxy")
    assert np.nan_to_num(cpu.peak, nan=-1).tolist() == [-1, *(10.0 * at + 1 for at in range(1, 11)), -1]
    assert cpu.busiest.tolist() == [-1, *[proxy] * 10, -1]
    assert cpu.mean[5] == 50.5
    assert cpu.highest == 101
    assert (disk.peak[1], disk.highest, network.peak[1]) == (2_000, 2_000, 1_000)
    assert np.isnan(disk.peak).sum() == 11


def test_what_is_in_no_bin_is_in_none(trace: TraceView) -> None:
    (cpu, *_) = Usage(trace).strips(-5 * STEP_NS, -STEP_NS, 7)
    assert np.isnan(cpu.peak).all()
    (cpu, *_) = Usage(trace).strips(0, 3 * STEP_NS, 2)  # the sample at 3 steps is not of [0, 3)
    assert cpu.peak.tolist() == [11, 21]


def test_a_trace_without_samples_has_no_strips(tmp_path: Path) -> None:
    write_synthetic_trace(tmp_path / "trace", Recipe())
    usage = Usage(open_trace(str(tmp_path / "trace")))
    assert usage.names == ()
    assert usage.strips(0, 10, 2) == ()


def test_findings_stand_where_and_when_they_were(trace: TraceView, tmp_path: Path) -> None:
    table = pa.table(
        {
            "severity": ["warning", "info", "error"],
            "host": ["proxy", None, "stranger"],
            "from_trace_ns": pa.array([EPOCH_NS + 7, None, EPOCH_NS + 3]),
            "to_trace_ns": pa.array([EPOCH_NS + 9, None, None], pa.int64()),
            "text": ["slow", "no time", "elsewhere"],
        }
    )
    write_table(trace.url, "findings", table)
    found = findings(trace)
    assert [(mark.kind, mark.from_ns, mark.to_ns, mark.text) for mark in found] == [
        ("error", 3, 3, "elsewhere"),
        ("warning", 7, 9, "slow"),
    ]
    assert found[0].lane == NO_LANE
    assert trace.lanes[found[1].lane].host == "proxy"


def fault_lines(*events: tuple[int, str, int]) -> str:
    fault = {"kind": "slow-disk", "target": "proxy/sda"}
    lines = [{"id": 1, "event": "planned", "wall_ns": EPOCH_NS, "fault": fault}]
    lines += [{"id": each, "event": event, "wall_ns": EPOCH_NS + at} for each, event, at in events]
    return "\n".join(json.dumps(line) for line in lines)


@pytest.mark.parametrize("folder", ["trace", "trace.captures"])
def test_faults_are_bands_while_they_were_in_force(trace: TraceView, tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir(exist_ok=True)
    (tmp_path / folder / "faults.jsonl").write_text(fault_lines((1, "started", 10), (1, "ended", 50)))
    (fault,) = faults(trace)
    assert (fault.from_ns, fault.to_ns, fault.text) == (10, 50, "slow-disk on proxy/sda")
    assert trace.lanes[fault.lane].host == "proxy"


def test_a_fault_that_did_not_end_lasts_and_one_that_never_began_is_none(trace: TraceView) -> None:
    file = Path(trace.url) / "faults.jsonl"
    file.write_text(fault_lines((1, "started", 10)))
    assert faults(trace)[0].to_ns == trace.duration_ns
    file.write_text(fault_lines())
    assert faults(trace) == ()
    file.write_text(fault_lines((1, "started", -90), (1, "ended", -50)))
    assert faults(trace) == ()


@pytest.mark.parametrize("text", ["{", '{"id": 1, "event": "started", "wall_ns": 5}', "[]"])
def test_a_damaged_record_of_faults_is_said(trace: TraceView, text: str) -> None:
    (Path(trace.url) / "faults.jsonl").write_text(text)
    with pytest.raises(InputError, match="damaged"):
        faults(trace)


def test_the_stages_of_runs_are_steps_of_the_load(trace: TraceView, tmp_path: Path) -> None:
    assert STARTED_NS == EPOCH_NS
    for name, state in (("run", "done"), ("killed", "running")):
        write_run(tmp_path / name, 1024, ["tx"], state)
    (tmp_path / "killed" / "run.json").write_text("{")
    steps = load_steps(trace, [tmp_path / "run", tmp_path / "killed", tmp_path / "nothing"])
    assert steps == (Mark("load", NO_LANE, 0, 1_000_000_000, "put, 1,024 at once"),)
    other = (tmp_path / "run" / "run.json").read_text().replace(str(STARTED_NS)[:6], "100000")
    (tmp_path / "run" / "run.json").write_text(other)
    assert load_steps(trace, [tmp_path / "run"]) == ()  # at another time
