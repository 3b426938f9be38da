"""Compares a trace's findings with the injected fault.

Right: the first finding is of a kind that names the fault, on the fault's host or on a link that ends there; with
`--peer`, on the link to that peer, or on a host of that link. First is first in the table's own order (severity, then
cost), of those that nobody says follow from another. A clean run is right if it has no finding of severity `warning`
or worse.

A fault that was made too late, on a machine too busy to make it sooner, is not graded: less than `LEAST_NS` of load met
it.
"""

import collections
import json
from dataclasses import dataclass
from pathlib import Path

import pyarrow.compute as pc

from benchmarks.diagnosis.cases import CLEAN, PLANS
from benchmarks.diagnosis.live import TRUTH_FILE
from collector.analysis import analyse
from collector.decode.sources import command_of, host_sources, samples_of
from collector.trace.reading import Trace

CLIENT = "client"
LAST = ("request_first_sent_trace_ns", "response_last_received_trace_ns")
LEAST_NS = 2_000_000_000
URGENT = ("error", "warning")
NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The injected fault, the first finding, and whether that names the fault."""

    run: str
    kind: str
    place: str
    found: str
    found_place: str
    right: bool
    in_time: bool  # the fault was there for long enough while there was load
    urgent_count: int  # findings of severity warning or worse
    others: tuple[str, ...]  # those after the first


def judge_run(run: Path, *, again: bool) -> Verdict:
    """Grade a run's folder. Arguments: `again`, to analyse its captures anew first."""
    trace, captures = run / "trace", run / "trace.captures"
    if again:
        made = [str(captures)]
        analyse(host_sources(made), str(trace), command=command_of(made), samples=samples_of(made))
    truth = json.loads((run / TRUTH_FILE).read_text("utf-8"))
    urgent = [row for row in Trace(str(trace)).read("findings").to_pylist() if row["severity"] in URGENT]
    first = urgent[0] if urgent else None
    hosts = [place for place in (first["host"], first["peer_host"]) if place] if first else []
    faults = [record["fault"] for record in truth["faults"] if record["started_ns"] is not None]
    return Verdict(
        run=run.name,
        kind=truth["kind"],
        place=_place(faults[0]) if faults else "",
        found=first["kind"] if first else NOTHING,
        found_place="–".join(hosts),
        right=not urgent if truth["kind"] == CLEAN else bool(faults) and _right(faults[0], first, hosts),
        in_time=all(_load_after_ns(trace, record["started_ns"]) >= LEAST_NS for record in truth["faults"]),
        urgent_count=len(urgent),
        others=tuple(f"{row['kind']} {row['host']}" for row in urgent[1:]),
    )


def _load_after_ns(trace: Path, started_ns: int | None) -> int:
    """How long requests went on after a fault began, by the machine's clock (faults of clocks begin before all)."""
    if started_ns is None:
        return 0
    asked = Trace(str(trace)).read("exchanges", ["client_host", *LAST])
    mine = asked.filter(pc.equal(asked["client_host"].cast("string"), CLIENT))
    return max(pc.max(mine[name]).as_py() or 0 for name in LAST) - started_ns


def _right(fault: dict, first: dict | None, hosts: list[str]) -> bool:
    if first is None or first["kind"] not in PLANS[fault["kind"]].accepted:
        return False
    peer = fault["parameters"]["peer"]
    host = fault["target"].partition("/")[0]
    return bool({host, peer} & set(hosts)) if peer and len(hosts) == 1 else {host, *filter(None, [peer])} <= {*hosts}


def _place(fault: dict) -> str:
    peer = fault["parameters"]["peer"]
    return f"{fault['target']}–{peer}" if peer else fault["target"]


def table(verdicts: list[Verdict]) -> str:
    """The confusion table in Markdown: what was injected, what came first, how often; of faults made in time."""
    late = [verdict for verdict in verdicts if not verdict.in_time]
    verdicts = [verdict for verdict in verdicts if verdict.in_time]
    lines = ["| injected | runs | named right | what came first |", "|---|--:|--:|---|"]
    kinds = [kind for kind in (*PLANS, CLEAN) if any(verdict.kind == kind for verdict in verdicts)]
    for kind in kinds:
        of_kind = [verdict for verdict in verdicts if verdict.kind == kind]
        counts = collections.Counter(_first(verdict) for verdict in of_kind)
        named = ", ".join(f"{count}× {what}" for what, count in counts.most_common())
        lines.append(f"| {kind} | {len(of_kind)} | {sum(verdict.right for verdict in of_kind)} | {named} |")
    faulty = [verdict for verdict in verdicts if verdict.kind != CLEAN]
    clean = [verdict for verdict in verdicts if verdict.kind == CLEAN]
    if faulty:
        right = sum(verdict.right for verdict in faulty)
        lines.append(f"\n{right} of {len(faulty)} faults named right ({100 * right / len(faulty):.1f} %).")
    if clean:
        false = sum(verdict.urgent_count for verdict in clean)
        lines.append(f"{false} false findings of severity warning or worse in {len(clean)} clean runs.")
    if late:
        lines.append(f"Not graded, as the fault came too late: {len(late)} runs.")
    return "\n".join(lines)


def _first(verdict: Verdict) -> str:
    return f"`{verdict.found}`" + ("" if verdict.right or verdict.found == NOTHING else f" on {verdict.found_place} ✗")
