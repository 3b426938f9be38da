"""A whole trace on disk from a script of transfers (`tests.helpers.scripts`), by the stages that a capture goes through
after matching."""

from collector.findings.diagnosis import find
from collector.hops.quality import quality_of
from collector.requests.endings import with_endings
from collector.requests.exchanges import build_exchanges
from collector.requests.outcomes import answering_servers, final_outcomes, with_outcomes
from collector.requests.spans import link
from collector.trace.model import CommandInfo, CounterInfo, HostInfo, PointInfo, TraceInfo
from collector.trace.writing import write_trace
from testkit.tables import BASE_NS, by_flow, table
from tests.helpers.scripts import play
from tests.helpers.service_ports import named_ports, names_of_ports

SERVICES = {8080: "swift-proxy", 6200: "swift-object"}


def write_script_trace(
    url: str, script: str, command: CommandInfo | None = None, counters: tuple[CounterInfo, ...] = ()
) -> TraceInfo:
    """Write the trace that the script makes to `url`. Hosts are those of its hops; the first seen is the reference."""
    played = play(script)
    rows = played.hops.to_pylist()
    hosts = list(dict.fromkeys(row[end] for row in rows for end in ("send_host", "receive_host") if row[end]))
    info = TraceInfo(
        created_ns=0,
        tool_version="0.1.0",
        hosts=tuple(_host(name, number, rows) for number, name in enumerate(hosts)),
        counters=counters,
        command=command,
        services=named_ports(SERVICES),
    )
    built = build_exchanges(played.hops, played.messages, played.connections, names_of_ports(SERVICES))
    exchanges = with_outcomes(with_endings(built.exchanges, built.hops))
    built = built._replace(exchanges=final_outcomes(exchanges, answering_servers(exchanges)))
    tables = {
        "hops": built.hops,
        "messages": played.messages,
        "connections": played.connections,
        "exchanges": built.exchanges,
        "spans": link(built.exchanges),
        "quality": quality_of(by_flow(built.hops)),
        "clocks": table("clocks", [_clock(name, number) for number, name in enumerate(hosts)]),
    }
    with write_trace(url) as writer:
        for name, content in (tables | {"findings": find(tables, info)}).items():
            writer.write_table(name, content)
        writer.write_info(info)
    return info


def _host(name: str, number: int, rows: list[dict]) -> HostInfo:
    ends = (("send_host", "send_host_ns"), ("receive_host", "receive_host_ns"))
    stamps = [row[at] for row in rows for host, at in ends if row[host] == name and row[at] is not None]
    return HostInfo(
        host=name,
        addresses=(f"10.0.0.{number + 1}",),
        points=(PointInfo(f"{name}/eth0", "eth0", "ethernet"),),
        files=(f"{name}.pcap",),
        packets_count=len(stamps),
        events_count=len(stamps),
        first_host_ns=min(stamps, default=None),
        last_host_ns=max(stamps, default=None),
    )


def _clock(name: str, number: int) -> dict[str, object]:
    return {
        "host": name,
        "from_host_ns": BASE_NS,
        "to_host_ns": BASE_NS,
        "offset_ns": 0,
        "skew_ppb": 0,
        "uncertainty_ns": 0 if number == 0 else 2500,
        "likely_error_ns": 0 if number == 0 else 300,
        "reference": number == 0,
        "method": "hull",
    }
