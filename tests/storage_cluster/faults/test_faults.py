"""Faults as values: what may be asked for, in which order things happen, what the record says."""

import contextlib
import dataclasses
import errno
import io
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from storage_cluster import topology as topologies
from storage_cluster.errors import MissingResourceError
from storage_cluster.faults import cpu, log
from storage_cluster.faults.injector import Injector
from storage_cluster.faults.kinds import KINDS, Fault, FaultError, Parameters, Target, with_defaults
from storage_cluster.faults.relay import Lane, Relay, Rule
from storage_cluster.faults.units import DRIFT, DURATION, FRACTION, RATE

BUNDLED = topologies.load(topologies.BUNDLED_FILE)
TARGETS = {
    Target.HOST: "storage2",
    Target.SERVERS: "storage2/object",
    Target.DEVICE: "storage2/d1",
}
NEEDED = Parameters(probability=0.5, delay_ns=7, rate_bits_per_s=10_000_000, cpu_share=0.2)


def minimal(kind: str, **more: object) -> Fault:
    """The shortest order of this kind that is accepted."""
    needed = {name: getattr(NEEDED, name) for name in KINDS[kind].required}
    if kind == "clock":
        needed["offset_ns"] = 7
    return Fault(kind, TARGETS[KINDS[kind].target], Parameters(**needed), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_accepted_with_its_least_and_defaults_are_filled_in(kind: str) -> None:
    parameters = with_defaults(minimal(kind), BUNDLED).parameters.given_values()
    expected = {name for name, value in KINDS[kind].defaults.items() if value is not None}
    assert parameters.keys() == expected | set(KINDS[kind].required)


@pytest.mark.parametrize(
    ("fault", "named"),
    [
        (Fault("stop", "storage9"), "no host 'storage9'"),
        (Fault("stop", "storage1/proxy"), "storage1/object"),
        (Fault("stop", "client"), "nothing on this host"),
        (Fault("cut", "storage1/object"), "needs HOST, not"),
        (Fault("full-disk", "storage1"), "storage1/d1"),
        (Fault("drop", "storage1"), "needs --probability"),
        (Fault("stop", "storage1", Parameters(delay_ns=3)), "takes no --delay"),
        (Fault("cut", "storage1", Parameters(peer="storage1")), "cannot be itself"),
        (Fault("cut", "storage1", Parameters(peer="x")), "no host 'x'"),
        (Fault("clock", "storage1"), "--offset, --drift"),
        (Fault("restart", "storage1", for_ns=3), "leave out --for"),
        (Fault("drop", "storage1", Parameters(probability=1.1)), "--probability is out of range; give 0 % to 100 %"),
        (Fault("delay", "storage1", Parameters(delay_ns=-1)), "--delay is out of range"),
        (Fault("delay", "storage1", Parameters(delay_ns=5, jitter_ns=6)), "jitter is more than the delay"),
        (Fault("bandwidth", "storage1", Parameters(rate_bits_per_s=0)), "8kbit or more"),
        (Fault("cpu", "storage1", Parameters(cpu_share=0.0)), "1 % or more"),
        (Fault("stop", "storage1", after_ns=-1), "cannot begin in the past"),
        (Fault("stop", "storage1", for_ns=0), "nor last no time"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_would(fault: Fault, named: str) -> None:
    with pytest.raises(FaultError, match=named):
        with_defaults(fault, BUNDLED)


@pytest.mark.parametrize(
    ("unit", "text", "value"),
    [
        (DURATION, "5s", 5_000_000_000),
        (DURATION, "-1.5ms", -1_500_000),
        (DURATION, "10 us", 10_000),
        (RATE, "10mbit", 10_000_000),
        (DRIFT, "100ppm", 100_000),
        (FRACTION, "2.5%", 0.025),
        (FRACTION, "1", 1.0),
    ],
)
def test_quantities(unit: click.ParamType, text: str, value: float) -> None:
    assert unit.convert(text, None, None) == pytest.approx(value)


@pytest.mark.parametrize(("unit", "text"), [(DURATION, "5"), (DURATION, "s"), (RATE, "1mb"), (FRACTION, "x%")])
def test_what_is_no_quantity_is_refused(unit: click.ParamType, text: str) -> None:
    with pytest.raises(click.BadParameter, match="write it like"):
        unit.convert(text, None, None)


class Cable:
    """An effect that records what it receives."""

    def __init__(self) -> None:
        self.received: list[list[str]] = []
        self.refuses = ""
        self.ended = False

    def apply(self, active: tuple[Fault, ...]) -> None:
        if self.refuses in [fault.kind for fault in active]:
            raise MissingResourceError("no such module", "load it")
        self.received.append([f"{fault.kind} {fault.target}" for fault in active])

    def once(self, fault: Fault) -> str:
        self.received.append([f"once {fault.kind}"])
        return "here"

    def end(self) -> None:
        self.ended = True


class Run:
    """An injector with a clock of its own."""

    def __init__(self, folder: Path) -> None:
        self.now_ns = 0
        self.folder = folder
        self.cable = Cable()
        self.injector = Injector(folder, BUNDLED, [self.cable], lambda: self.now_ns)

    def add(self, fault: Fault) -> dict:
        return self.injector.carry_out({"order": "add", "fault": dataclasses.asdict(fault)})

    def clear(self, *ids: int) -> dict:
        return self.injector.carry_out({"order": "clear", "ids": list(ids) or None})

    def at(self, now_ns: int) -> None:
        self.now_ns = now_ns
        self.injector.run_due()

    def record(self) -> list[tuple[int, str, str | None]]:
        return [(record.id, record.state, record.how) for record in log.read(self.folder)]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def test_a_fault_starts_and_ends_at_its_times(run: Run) -> None:
    assert run.add(minimal("stop", after_ns=100, for_ns=50)) == {"ok": True, "ids": [1]}
    assert run.injector.idle_s() == pytest.approx(100e-9)
    run.at(99)
    assert (run.cable.received, run.record()) == ([], [(1, "planned", None)])
    run.at(100)
    assert (run.cable.received, run.record()) == ([["stop storage2/object"]], [(1, "active", None)])
    run.at(149)
    assert len(run.cable.received) == 1
    run.at(150)
    assert (run.cable.received[1:], run.record()) == ([[]], [(1, "ended", "expired")])
    assert run.injector.idle_s() is None


def test_effects_receive_the_whole_set(run: Run) -> None:
    run.add(minimal("stop"))
    run.add(minimal("cut"))
    assert run.clear(1)["ids"] == [1]
    assert run.cable.received[-2:] == [["stop storage2/object", "cut storage2"], ["cut storage2"]]
    assert run.clear()["ids"] == [2]
    assert run.cable.received[-1] == []
    assert run.record() == [(1, "ended", "cleared"), (2, "ended", "cleared")]


def test_a_planned_one_can_be_cleared_and_never_starts(run: Run) -> None:
    run.add(minimal("stop", after_ns=100))
    run.clear(1)
    run.at(200)
    assert (run.cable.received, run.record()) == ([], [(1, "ended", "cleared")])


def test_a_cleared_one_does_not_end_again(run: Run) -> None:
    run.add(minimal("stop", for_ns=100))
    run.clear(1)
    run.add(minimal("stop"))
    run.at(200)
    assert run.record() == [(1, "ended", "cleared"), (2, "active", None)]


def test_the_same_on_the_same_twice_is_refused(run: Run) -> None:
    run.add(minimal("cut"))
    answer = run.add(minimal("cut"))
    assert not answer["ok"] and "fault 1 is that already" in str(answer["error"])
    assert run.add(dataclasses.replace(minimal("cut"), parameters=Parameters(peer="client")))["ok"]


def test_what_cannot_be_made_leaves_nothing_but_its_record(run: Run) -> None:
    run.add(minimal("cut"))
    run.cable.refuses = "delay"
    answer = run.add(minimal("delay"))
    assert answer == {"ok": False, "error": "no such module", "next_step": "load it"}
    assert run.cable.received[-1] == ["cut storage2"]
    assert run.record() == [(1, "active", None), (2, "ended", "failed")]


def test_what_cannot_be_undone_is_said_and_is_over_in_the_record(run: Run) -> None:
    run.add(minimal("cut"))
    run.add(minimal("delay"))
    run.cable.refuses = "delay"
    assert run.clear(1)["error"] == "no such module"
    assert run.record() == [(1, "ended", "failed"), (2, "active", None)]


def test_a_momentary_one_is_done_and_over(run: Run) -> None:
    run.add(minimal("restart"))
    assert (run.cable.received, run.record()) == ([["once restart"]], [(1, "ended", "momentary")])
    assert log.read(run.folder)[0].detail == "here"


def test_down_ends_all_in_the_record(run: Run) -> None:
    run.add(minimal("cut"))
    run.add(minimal("stop", after_ns=100))
    run.injector.end_all()
    assert run.cable.ended
    assert run.record() == [(1, "ended", "down"), (2, "ended", "down")]


def test_what_a_killed_keeper_left_open_is_closed_and_numbers_go_on(run: Run) -> None:
    run.add(minimal("cut"))
    log.close(run.folder)
    assert run.record() == [(1, "ended", "lost")]
    assert Run(run.folder).add(minimal("cut"))["ids"] == [2]


def test_the_record_keeps_what_was_asked_and_when(run: Run) -> None:
    run.add(minimal("delay", for_ns=9))
    run.clear()
    (record,) = log.read(run.folder)
    assert record.fault == with_defaults(minimal("delay", for_ns=9), BUNDLED)
    assert record.started_ns is not None and record.ended_ns is not None
    assert record.planned_ns <= record.started_ns <= record.ended_ns


@pytest.mark.parametrize("line", ["{", "[]", '{"id": 1}', '{"id": 1, "event": "started", "wall_ns": 1, "detail": ""}'])
def test_a_damaged_record_is_one_line(tmp_path: Path, line: str) -> None:
    (tmp_path / log.LOG_FILE).write_text(line + "\n")
    with pytest.raises(FaultError, match="is no record of faults; move it away"):
        log.read(tmp_path)


def test_an_order_that_is_none_is_answered(run: Run) -> None:
    assert not run.injector.carry_out({"order": "add"})["ok"]
    assert not run.clear(7)["ok"]


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (Fault("stop", "storage1"), "stop storage1"),
        (
            Fault("slow-disk", "storage2/d1", Parameters(latency_ns=200_000_000)),
            "slow-disk storage2/d1, latency 200 ms",
        ),
        (
            Fault("reorder", "proxy", Parameters("client", "to", 0.015, delay_ns=1_500, seed=7)),
            "reorder proxy, peer client, direction to, probability 1.5 %, delay 1.5 µs, seed 7",
        ),
        (Fault("bandwidth", "proxy", Parameters(rate_bits_per_s=2_500_000)), "bandwidth proxy, rate 2.5 Mbit/s"),
        (Fault("cpu", "proxy", Parameters(cpu_share=0.2)), "cpu proxy, share 20 % of a core"),
        (
            Fault("clock", "proxy", Parameters(offset_ns=-3_000_000_000, drift_ppb=100_000)),
            "clock proxy, offset -3 s, drift 100 ppm",
        ),
        (Fault("delay", "proxy", Parameters(delay_ns=0, jitter_ns=20)), "delay proxy, delay 0 ns, jitter 20 ns"),
        (Fault("backlog", "proxy", Parameters(backlog_count=2)), "backlog proxy, backlog 2"),
    ],
)
def test_a_fault_is_described_for_people(fault: Fault, text: str) -> None:
    assert fault.text() == text


RULE = Rule("", to_host=True, from_host=True, probability=1.0, delay_ns=100, jitter_ns=0, overtaken=False, seed=1)


def frame(source: str, number: int = 0) -> bytes:
    address = bytes(map(int, source.split(".")))
    return bytes(10) + bytes(12) + b"\x08\x00" + bytes(12) + address + bytes(4) + bytes([number])


def drain(lane: Lane) -> list[tuple[int, int]]:
    """(due, last byte) of each frame in the order it leaves."""
    order = []
    while (due_ns := lane.next_due_ns) is not None:
        assert lane.take(due_ns - 1) is None
        taken = lane.take(due_ns)
        assert taken is not None
        order.append((due_ns, taken[-1]))
    return order


def test_delay_counts_from_arrival() -> None:
    lane = Lane([RULE])
    for number, arrival_ns in enumerate((0, 5, 300)):
        lane.add(frame("10.0.0.1", number), arrival_ns)
    assert drain(lane) == [(100, 0), (105, 1), (400, 2)]


def test_jitter_spreads_and_keeps_the_order() -> None:
    lane = Lane([dataclasses.replace(RULE, jitter_ns=90)])
    for number in range(200):
        lane.add(frame("10.0.0.1", number), number * 20)
    order = drain(lane)
    assert [number for _, number in order] == list(range(200))
    delays = [due_ns - number * 20 for due_ns, number in order]
    assert 10 <= min(delays) < 60 and 140 < max(delays) <= 190


def test_reordering_lets_others_pass() -> None:
    lane = Lane([dataclasses.replace(RULE, probability=0.2, delay_ns=5, overtaken=True)])
    for number in range(100):
        lane.add(frame("10.0.0.1", number), number)
    order = drain(lane)
    late = [number for due_ns, number in order if due_ns != number]
    assert 5 < len(late) < 40
    assert all(due_ns == number + 5 for due_ns, number in order if number in late)
    assert [number for _, number in order] != list(range(100))


def test_only_the_peers_frames_are_late() -> None:
    lane = Lane([dataclasses.replace(RULE, peer="10.0.0.2")])
    lane.add(frame("10.0.0.1", 1), 0)
    lane.add(frame("10.0.0.2", 2), 0)
    assert drain(lane) == [(0, 1), (100, 2)]


def test_a_new_rule_keeps_what_is_queued() -> None:
    earlier, lane = Lane([RULE]), Lane([])
    earlier.add(frame("10.0.0.1", 1), 0)
    lane.take_over(earlier)
    lane.add(frame("10.0.0.1", 2), 10)
    assert drain(lane) == [(100, 1), (100, 2)]


def test_who_was_slowed_goes_back_to_the_control_group_it_came_from() -> None:
    own = cpu.CGROUP_ROOT / "cpu" / f"twintap-test-{os.getpid()}"
    try:
        own.mkdir()
    except OSError:
        pytest.skip("no control groups of version 1 here, or not ours to make")
    sleeper = subprocess.Popen(["sleep", "60"])
    try:
        (own / "cgroup.procs").write_text(str(sleeper.pid))
        brake = cpu._brake("held", sleeper.pid)
        brake.hold([sleeper.pid], 0.5)
        assert (own / "held" / "cpu.cfs_quota_us").read_text() == "50000\n"
        assert (own / "held" / "cgroup.procs").read_text() == f"{sleeper.pid}\n"
        brake.release()
        assert (own / "cgroup.procs").read_text() == f"{sleeper.pid}\n"
        assert not (own / "held").exists()
    finally:
        sleeper.kill()
        sleeper.wait()
        own.rmdir()


@pytest.mark.parametrize(("number", "ends"), [(errno.ENETDOWN, False), (errno.ENODEV, True)])
def test_a_cable_outlives_an_interface_that_is_taken_down(
    number: int, ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Down:
        def recvmsg(self, *_: int) -> None:
            raise OSError(number, "gone")

    down, other = Down(), Down()
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    turns = iter([[down], [sys.stdin]])
    monkeypatch.setattr("select.select", lambda *_: (next(turns), [], []))
    with pytest.raises(OSError, match="gone") if ends else contextlib.nullcontext():
        Relay(down, other).run()  # type: ignore[arg-type]
