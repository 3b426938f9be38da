"""Checks every few seconds whether the status that the collector and the viewer report is true."""

import json
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.faults_of_service.parts import Part
from benchmarks.faults_of_service.service import (
    ADDRESS,
    COLLECTOR_PORT,
    SESSION,
    VIEWER_PORT,
    Service,
)
from benchmarks.faults_of_service.stored import names_of

PAUSE_S = 0.25
"""Between two looks, for each agent: a look reads the names of all that has arrived."""
PATIENCE_S = 30.0
SLOW_S = 3.0
"""By which a time that a part says may be off: between the two looks this program may wait for a processor."""


@dataclass
class Watch:
    """Asks, and notes each statement that is wrong."""

    service: Service
    wrong: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    _ending: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Until `end`."""
        while not self._ending.wait(PAUSE_S * len(self.service.agents)):
            for what, check in (("session", self._session), ("live", self._live), ("viewer", self._viewer)):
                for fault in check():
                    self.wrong.append(f"{time.time():.1f} {what}: {fault} ({self.service.running})")
                    self.counts[f"{what}: wrong"] += 1

    def end(self) -> None:
        """Stop asking."""
        self._ending.set()

    def _session(self) -> Iterator[str]:
        acknowledged, before = acknowledged_names(self.service), self._segments()
        said = yield from self._ask(self.service.collector, _of_session(""))
        if said is None:
            return
        after, hosts = self._segments(), {each["host"]: each for each in said["hosts"]}
        for host, names in after.items():
            found = hosts.get(host, {"segments_count": 0, "missing_count": 0, "closed": False, "incarnations": []})
            earlier = before.get(host, set())
            if not len(earlier) <= found["segments_count"] <= len(names):
                yield f"{host} has {found['segments_count']} segments, not {len(earlier)} to {len(names)}"
            last, last_before = last_numbers(names), last_numbers(earlier)
            said_last = {each["incarnation"]: each["last_number"] for each in found["incarnations"]}
            for incarnation, number in said_last.items():
                if not last_before.get(incarnation, 0) <= number <= last.get(incarnation, 0):
                    yield f"{incarnation}'s last number is {number}, not {last.get(incarnation, 0)}"
            missing_count = sum(last.values()) - len(names)
            if earlier == names and not found["closed"] and found["missing_count"] < missing_count:
                yield f"{found['missing_count']} of {host} are missing, not {missing_count}"
            if missing := acknowledged.get(host, set()) - names:
                yield f"{host}'s {sorted(missing)[:3]} were acknowledged and are not there"

    def _live(self) -> Iterator[str]:
        said = yield from self._ask(self.service.collector, _of_session("/live"))
        if said is None:
            return
        made = _description(self.service.live_trace)
        if not said["running"]:
            yield "live analysis does not run"
        if bool(said["waiting_count"]) != bool(said["behind_seconds"]):
            yield f"{said['waiting_count']} segments wait, for {said['behind_seconds']} s"
        if said["error"] and self.service.collector.hurt_until < time.time():
            yield f"the live trace is not made: {said['error']}"
        if made and said["made_ns"] == made["created_ns"]:
            self.counts["live: compared with its trace"] += 1
            packets_count = sum(host["packets_count"] for host in made["hosts"])
            if said["packets_count"] != packets_count:
                yield f"the window holds {said['packets_count']} packets, its trace {packets_count}"

    def _viewer(self) -> Iterator[str]:
        before, note = (
            _description(self.service.live_trace),
            _text(self.service.live_trace.with_name(".live.error")).strip(),
        )
        asked = time.time()
        said = yield from self._ask(self.service.viewer, f"http://127.0.0.1:{VIEWER_PORT}/api/live")
        after = _description(self.service.live_trace)
        if said is None or before is None or after is None:
            return
        hurt = max(self.service.viewer.hurt_until, self.service.collector.hurt_until) > time.time()
        if said["trouble"] and said["trouble"] != note and not hurt:
            yield f"it says {said['trouble']!r}, the collector {note!r}"
        makes = {f"{each['created_ns']}": each for each in (before, after)}
        if said["made"] not in makes:
            if before == after and not said["trouble"]:
                yield f"it shows the make {said['made']}, there is {sorted(makes)}"
            return
        shown = makes[said["made"]]
        newest_ns = max(host["last_host_ns"] for host in shown["hosts"])
        least, most = asked - newest_ns / 1e9, time.time() - newest_ns / 1e9
        if not max(0.0, least) - SLOW_S <= said["behind_seconds"] <= max(0.0, most) + SLOW_S:
            yield f"it is {said['behind_seconds']:.1f} s behind, not {least:.1f} to {most:.1f}"
        dropped = sum(each["count"] for each in shown["counters"] if each["name"] == "capture_dropped")
        if said["dropped_count"] != dropped:
            yield f"{said['dropped_count']} packets were dropped, not {dropped}"

    def _segments(self) -> dict[str, set[str]]:
        """The names of what lies in the collector's folder, by host."""
        folder = self.service.data / "sessions" / SESSION
        return {host: names_of(folder / host) for host in self.service.agents}

    def _ask(self, part: Part, url: str) -> Generator[str, None, Any]:
        """What it answers; None where there is no answer, which is wrong unless the part was hurt."""
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {self.service.token}"})
        asked = time.time()
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                self.counts[f"{part.name}: answers"] += 1
                return json.load(answer)
        except (OSError, ValueError) as error:
            detail = error.read()[:200] if isinstance(error, urllib.error.HTTPError) else ""
            self.counts[f"{part.name}: no answer"] += 1
            if part.hurt_until < asked:
                yield f"{url} is not answered though nothing was done to it: {error} {detail!r}"
            return None


def acknowledged_names(service: Service) -> dict[str, set[str]]:
    """The names of the segments that were acknowledged, by host."""
    found: dict[str, set[str]] = {}
    for each in acknowledgements(service):
        found.setdefault(each["host"], set()).add(each["name"])
    return found


def last_numbers(names: set[str]) -> dict[str, int]:
    """The highest number of each incarnation."""
    found: dict[str, int] = {}
    for name in names:
        incarnation, _, file = name.partition("/")
        number = int(file.removesuffix(".pcapng").rsplit("-", 1)[1])
        found[incarnation] = max(number, found.get(incarnation, 0))
    return found


def acknowledgements(service: Service) -> list[dict[str, Any]]:
    """What the witness has seen acknowledged."""
    text = _text(service.acknowledged_log)
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("}\n")]


def post(service: Service, path: str) -> tuple[int, Any]:
    """Status and answer of a POST to the collector about the session."""
    headers = {"Authorization": f"Bearer {service.token}"}
    request = urllib.request.Request(_of_session(path), method="POST", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=1200) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def _of_session(path: str) -> str:
    return f"http://{ADDRESS}:{COLLECTOR_PORT}/api/sessions/{SESSION}{path}"


def _description(trace: Path) -> Any:
    """The description of the trace that is there now; None if there is none."""
    text = _text(trace / "trace.json")
    return json.loads(text) if text else None


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
