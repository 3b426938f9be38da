"""The invariants of every run, and of two runs over captures that differ in one way."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from benchmarks.fuzz.pipeline import EXIT_OPERATOR, MOST_CPU_S, MOST_MEMORY_BYTES, Run
from benchmarks.fuzz.systems import Captures
from testkit.capture_records import Record, join, packet_places, split

TRACEBACK = re.compile(r"Traceback|panicked at|PanicException|\.rs:\d+")
SENTENCE = re.compile(r"tracer: \S")
LONGEST_LINE = 20_000
SHIFT_NS = (1, 1_000, 50_000_000, 3_600 * 10**9, -86_400 * 10**9)
CAPTURE_KINDS = frozenset({"capture_drop", "unaligned_clock", "inconsistent_clock", "absurd_stamps"})
"""Findings about captures and clocks themselves, which say what a cut took away."""


def failures(run: Run) -> list[str]:
    """The rules that a run broke: by its exit status, its output, its time and memory."""
    found = []
    if run.status not in (0, EXIT_OPERATOR):
        found.append(f"exit status {run.status}")
    if TRACEBACK.search(run.said):
        found.append("a traceback")
    if run.status == EXIT_OPERATOR and not SENTENCE.match((run.said.strip().splitlines() or [""])[-1]):
        found.append("no plain sentence")
    if run.peak_bytes > MOST_MEMORY_BYTES:
        found.append(f"{run.peak_bytes >> 20} MiB")
    if run.cpu_s > MOST_CPU_S:
        found.append(f"{run.cpu_s:.0f} s of CPU time")
    return [*found, *_unprintable("standard error", run.said), *_unprintable("standard output", run.printed)]


def _unprintable(name: str, text: str) -> Iterator[str]:
    bad = next((line for line in text.split("\n") if not line.isprintable()), None)
    if bad is not None:
        yield f"{name} holds {bad[:200]!r}"


@dataclass(frozen=True, slots=True)
class Rule:
    """Two runs: `change` makes the captures of the second, `compare` names what must not differ and does."""

    name: str
    change: Callable[[Captures, Random], tuple[Captures, str]]
    compare: Callable[[dict[str, Any], dict[str, Any], str], list[str]]


def _swap_hosts(captures: Captures, random: Random) -> tuple[Captures, str]:
    hosts = list(captures.hosts.items())
    random.shuffle(hosts)
    return replace(captures, hosts=dict(hosts)), ""


def _shift_clock(captures: Captures, random: Random) -> tuple[Captures, str]:
    host, shift_ns = random.choice(list(captures.hosts)), random.choice(SHIFT_NS)
    moved = [_move(record, shift_ns) for record in split(captures.hosts[host])]
    return replace(captures, hosts=captures.hosts | {host: join(moved)}), host


def _move(record: Record, shift_ns: int) -> Record:
    if not record.is_packet:
        return record
    first, second = record.stamp()
    if record.stamp_at < 0:
        stamp = divmod(first * 10**9 + second + shift_ns, 10**9)
    else:
        stamp = divmod((first << 32 | second) + shift_ns, 1 << 32)
    return record.with_stamp(*stamp)


def _cut_end(captures: Captures, random: Random) -> tuple[Captures, str]:
    host = random.choice(list(captures.hosts))
    records = split(captures.hosts[host])
    places = packet_places(records)
    end = random.choice(places[len(places) // 4 :] or [len(records)])
    return replace(captures, hosts=captures.hosts | {host: join(records[:end])}), host


def _same_pairs(one: dict[str, Any], other: dict[str, Any], _host: str) -> list[str]:
    return _differences("hop", map(tuple, one["pairs"]), map(tuple, other["pairs"]))


def _same_matches(one: dict[str, Any], other: dict[str, Any], _host: str) -> list[str]:
    matched = [[tuple(pair) for pair in run["pairs"] if pair[-1] == "matched"] for run in (one, other)]
    return _differences("match", *map(iter, matched))


def _same_all(one: dict[str, Any], other: dict[str, Any], _host: str) -> list[str]:
    said = [((each["kind"], each["host"], each["count"]) for each in run["findings"]) for run in (one, other)]
    return [*_same_pairs(one, other, ""), *_differences("finding", *said)]


def _nothing_elsewhere(one: dict[str, Any], other: dict[str, Any], host: str) -> list[str]:
    """Findings of the cut captures that name neither the host that was cut nor what was there before."""
    before = {(each["kind"], each["host"], each["peer_host"]) for each in one["findings"]}
    new = [
        each
        for each in other["findings"]
        if each["severity"] in ("error", "warning") and each["kind"] not in CAPTURE_KINDS
        and (each["kind"], each["host"], each["peer_host"]) not in before
    ]  # fmt: skip
    return [f"new finding: {each['text']}" for each in new if host not in (each["host"], each["peer_host"])]


def _differences(what: str, one: Iterator[Any], other: Iterator[Any]) -> list[str]:
    before, after = Counter(one), Counter(other)
    gone, new = before - after, after - before
    if not gone and not new:
        return []
    return [f"{what}s gone: {list(gone)[:3]}, new: {list(new)[:3]} ({gone.total()}, {new.total()})"]


RULES = (
    Rule("hosts in another order", _swap_hosts, _same_all),
    Rule("a shifted clock", _shift_clock, _same_matches),
    Rule("a file cut off", _cut_end, _nothing_elsewhere),
)
