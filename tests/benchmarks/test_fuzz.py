"""The pipeline's fuzzer: a short seeded run for real, and that its judge finds what is wrong."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from benchmarks.fuzz import mutations, pipeline, rules, systems
from benchmarks.fuzz.pipeline import Run
from testkit.capture_records import join, packet_places, split

ROOT = Path(__file__).resolve().parents[2]
GOOD = Run(0, "", "all is well\n", 1 << 20, 1.0)


def test_a_short_run_finds_nothing() -> None:
    argv = [sys.executable, "-m", "benchmarks.fuzz", "--count", "4", "--first", "16"]  # 17 and 19 failed once
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 captures of 7 systems" in done.stdout


@pytest.mark.parametrize("folder", systems.find([]), ids=lambda folder: folder.name)
def test_a_capture_is_its_records(folder: Path) -> None:
    captures = systems.load(folder, Random(1))
    assert len(captures.hosts) >= 2
    for data in captures.hosts.values():
        assert join(split(data)) == data
        assert all(split(data)[place].packet for place in packet_places(split(data)))
        for end in range(0, len(data), 997):
            assert join(split(data[:end])) == data[:end]


@pytest.mark.parametrize("mutation", mutations.MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_a_mutation_changes_captures_and_is_its_seeds(mutation: mutations.Mutation) -> None:
    captures = systems.load(systems.find([])[0], Random(1))
    changed = [mutation(captures, Random(seed)) for seed in range(20)]
    assert changed == [mutation(captures, Random(seed)) for seed in range(20)]
    assert sum(each != captures for each in changed) > 10


@pytest.mark.parametrize(
    ("run", "found"),
    [
        (GOOD, []),
        (Run(2, "tracer: a.pcap is empty; capture again\n", "", 0, 0), []),
        (Run(2, "a.pcap is empty\n", "", 0, 0), ["no plain sentence"]),
        (Run(1, "", "", 0, 0), ["exit status 1"]),
        (Run(-9, "", "", 3 << 30, 0), ["exit status -9", "3072 MiB"]),
        (Run(0, "thread 'x' panicked at a.rs:1:2", "", 0, 61), ["a traceback", "61 s of CPU time"]),
        (Run(0, "", "a\x1b[31mb\n", 0, 0), ["standard output holds 'a\\x1b[31mb'"]),
    ],
)
def test_what_is_wrong_with_a_run(run: Run, found: list[str]) -> None:
    assert rules.failures(run) == found


def _child(script: str) -> int:
    return os.posix_spawn(sys.executable, [sys.executable, "-c", script], os.environ)


def test_a_run_that_waits_for_ever_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "MOST_IDLE_S", 0.3)
    status, _ = pipeline._wait_for(_child("import signal; signal.pause()"))
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL


def test_a_run_that_is_only_slow_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "MOST_IDLE_S", 0.3)
    used_s = iter(range(10_000))
    monkeypatch.setattr(pipeline, "_cpu_s", lambda _child: next(used_s))
    status, _ = pipeline._wait_for(_child("import time; time.sleep(1)"))
    assert status == 0


def pair(frame: int, state: str = "matched") -> list[object]:
    return ["a", frame, "b", frame, 0, 9, state]


def finding(kind: str, host: str, severity: str = "warning") -> dict[str, object]:
    return {"severity": severity, "kind": kind, "host": host, "peer_host": None, "count": 1, "text": kind}


ONE = {"pairs": [pair(1), pair(2)], "findings": [finding("packet_loss", "a")]}


@pytest.mark.parametrize(
    ("name", "other", "failed"),
    [
        ("hosts in another order", ONE, False),
        ("hosts in another order", ONE | {"pairs": [pair(1), pair(2, "ambiguous")]}, True),
        ("hosts in another order", ONE | {"findings": []}, True),
        ("a shifted clock", ONE | {"findings": []}, False),
        ("a shifted clock", ONE | {"pairs": [pair(1), pair(3)]}, True),
        ("a file cut off", ONE | {"findings": [finding("link_down", "a"), finding("capture_drop", "c")]}, False),
        ("a file cut off", ONE | {"findings": [finding("link_down", "c", "notice")]}, False),
        ("a file cut off", ONE | {"findings": [finding("link_down", "c")]}, True),
    ],
)
def test_what_may_not_differ(name: str, other: dict[str, object], failed: bool) -> None:
    (rule,) = [rule for rule in rules.RULES if rule.name == name]
    assert bool(rule.compare(ONE, other, "a")) == failed


def test_the_rules_change_what_they_say() -> None:
    captures = systems.load(systems.find([])[0], Random(1))
    for rule in rules.RULES:
        changed, host = rule.change(captures, Random(3))
        assert changed != captures or list(changed.hosts) != list(captures.hosts)
        assert set(changed.hosts) == set(captures.hosts)
        others = [name for name in captures.hosts if name != host]
        assert all(changed.hosts[name] == captures.hosts[name] for name in others)
