"""After the run: is everything acknowledged in the trace, and is everything that the trace says true?"""

import hashlib
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from benchmarks.faults_of_service import traffic
from benchmarks.faults_of_service.service import SESSION, Service
from benchmarks.faults_of_service.stored import contents_of
from benchmarks.faults_of_service.watch import acknowledgements
from collector.trace.reading import Trace
from collector.trace.schema import HopState

MARGIN_S = 3.0
"""Before an agent is killed, and around a change of its disk: what its capture may lack."""
LONGEST_WAY_S = 0.25
"""A packet takes microseconds here, more where a processor is missing; no more than this beyond its error bar."""
HOP_COLUMNS = ["state", "send_host", "receive_host", "send_host_ns", "one_way_delay_ns", "uncertainty_ns"]
SHOWN_HOPS_COUNT = 10
ENHANCED_PACKET_BLOCK = 6
NOT_CAPTURED = re.compile(r"nothing is captured|going on in memory|has room again|oldest segments are lost")
TROUBLE = re.compile(r"Traceback|panicked|Exception|Errno")


@dataclass(frozen=True)
class Truth:
    """A request, by the log of its client: when it was sent and answered (s)."""

    number: int
    sent: float
    answered: float


def segment_faults(service: Service) -> Iterator[str]:
    """Acknowledged segments that the collector does not have, or not as they were."""
    folder = service.data / "sessions" / SESSION
    hashes = {
        (host, name): hashlib.sha256(content).hexdigest()
        for host in service.agents
        for name, content in contents_of(folder / host)
    }
    for each in acknowledgements(service):
        found = hashes.get((each["host"], each["name"]))
        if found is None:
            yield f"segment {each['name']} was acknowledged and is not there"
        elif found != each["sha256"]:
            yield f"segment {each['name']} is not what was acknowledged"


def packets_in(segments: Iterator[bytes]) -> int:
    """Enhanced packet blocks, counted without our readers."""
    count = 0
    for content in segments:
        at = 0
        while at < len(content):
            kind, length = struct.unpack_from("<II", content, at)
            count += kind == ENHANCED_PACKET_BLOCK
            at += length
    return count


def trace_faults(service: Service, trace: str) -> Iterator[str]:
    """Requests that the trace of the whole run lacks, and statements in it that are wrong."""
    info = Trace(trace).info()
    for host in info.hosts:
        segments = (content for _, content in contents_of(service.data / "sessions" / SESSION / host.host))
        if (count := packets_in(segments)) != host.packets_count:
            yield f"{host.host}'s segments hold {count:,} packets, the trace {host.packets_count:,}"
    hops = pl.DataFrame(Trace(trace).read("hops", HOP_COLUMNS))
    for state, count in hops.group_by(pl.col("state").cast(pl.String)).len().iter_rows():
        if state == HopState.LOST:
            yield f"{count} packets are said to be lost, and none was"
    far = hops.filter((pl.col("one_way_delay_ns").abs() - pl.col("uncertainty_ns")) > LONGEST_WAY_S * 1e9)
    if len(far):
        most = far["one_way_delay_ns"].abs().max()
        yield f"{len(far)} of {len(hops)} hops are said to take up to {most / 1e9:.3f} s, by more than their error bars"
        for hop in far.head(SHOWN_HOPS_COUNT).iter_rows(named=True):
            way = f"{hop['send_host']} to {hop['receive_host']} at {hop['send_host_ns'] / 1e9:.3f} s"
            yield f"  of them {way}: {hop['one_way_delay_ns']:,} ± {hop['uncertainty_ns']:,} ns"


def missing_requests(
    service: Service, trace: str, logs: Sequence[tuple[Path, tuple[str, str]]]
) -> tuple[int, dict[str, int], list[str]]:
    """How many requests were sent; of each host how many it must have captured; and those that are not in the trace.

    Arguments: `logs`, that of each client, with the two hosts that must have its requests.
    """
    messages = pl.DataFrame(Trace(trace).read("messages", ["host", "transaction_id"]))
    seen = {
        (str(host), str(said))
        for host, said in messages.with_columns(pl.col("host").cast(pl.String)).unique().iter_rows()
    }
    spans = {host: list(captured_spans(service, host)) for host in service.agents}
    sent_count, must, missing = 0, dict.fromkeys(service.agents, 0), list[str]()
    for log, hosts in logs:
        truths = list(_truths(log))
        sent_count += len(truths)
        for host in hosts:
            inside = [each for each in truths if _is_inside(each, spans[host])]
            must[host] += len(inside)
            gone = [each for each in inside if (host, traffic.transaction_id(each.number)) not in seen]
            missing += [f"{host} has no request {each.number} of {each.sent:.1f}" for each in gone]
    return sent_count, must, missing


def _is_inside(request: Truth, spans: Sequence[tuple[float, float]]) -> bool:
    return any(begin < request.sent and request.answered < end for begin, end in spans)


def captured_spans(service: Service, host: str) -> Iterator[tuple[float, float]]:
    """When an agent of this host was surely capturing, by the machine's clock."""
    agent = service.agents[host]
    stopped = [done for done in service.done if (done.kind, done.target) == ("stopped", agent.name)]
    notices = [line.at for line in agent.lines if NOT_CAPTURED.search(line.text)]
    notices += [at for done in stopped for at in (done.begin, done.end)]  # its ring may be full by then
    for life in agent.lives:
        assert life.ended is not None, "the run is over"
        begin, end = life.ready + MARGIN_S, life.ended - MARGIN_S
        edges = sorted(at for at in notices if begin - MARGIN_S < at < end + MARGIN_S)
        for at in edges:
            if not any(done.begin < (begin + at) / 2 < done.end for done in stopped):
                yield begin, at - MARGIN_S
            begin = at + MARGIN_S
        yield begin, end


def said_faults(service: Service) -> Iterator[str]:
    """Lines of output that no operator should see, and parts that ended by themselves."""
    for part in service.parts.values():
        for line in part.lines:
            if TROUBLE.search(line.text):
                yield f"{part.name} said at {line.at:.1f}: {line.text[:300]}"
            elif not line.text.isprintable():
                yield f"{part.name} said at {line.at:.1f} what cannot be printed: {line.text[:100]!r}"


def leftovers(service: Service) -> Iterator[str]:
    """Files and processes that are left when everything has ended."""
    for place in (service.data, *(service.folder / f"spool-{host}" for host in service.agents)):
        for path in sorted(place.rglob("*")):
            if path.name.endswith((".incoming", ".partial")) or (path.suffix == ".pcapng" and place != service.data):
                yield f"{path} is left"


def _truths(log: Path) -> Iterator[Truth]:
    for line in log.read_text().splitlines():
        number, sent, answered = line.split()
        yield Truth(int(number), float(sent), float(answered))
