"""Requests of traces beside those that tshark reads in the same captures: `python -m benchmarks.beside_tshark FOLDER…`.

FOLDER has the captures of the hosts of one system, as `python -m benchmarks.real_systems NAME --keep DIR` leaves them
in `DIR/NAME/tcpdump`. They are replayed, and for each connection of a protocol that both can read, the requests of our
trace are counted beside those of tshark in the server's capture. tshark is given the protocol of each port, so that its
guesses play no part. Prints a line for each protocol, and one for each connection that differs; exits 1 if one does.
"""

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from collector.analysis import AnalysisOptions, HostSource, analyse
from collector.trace.reading import Trace

End = tuple[str, int]
"""A connection's client: address and port."""
Fields = Mapping[str, list[str]]
"""Of a packet of the client's: each occurrence of each field, in order."""


@dataclass(frozen=True)
class Rules:
    """How tshark shows a protocol's requests."""

    dissector: str
    fields: tuple[str, ...]
    requests: Callable[[Sequence[Fields]], int]
    """The number of requests in the client's packets of one connection."""
    words: str


def _occurrences(field: str) -> Callable[[Sequence[Fields]], int]:
    return lambda packets: sum(len(packet[field]) for packet in packets)


def _streams(packets: Sequence[Fields]) -> int:
    """Streams of which the client sent a header block."""
    headers = "1"
    return len(
        {
            stream
            for packet in packets
            for kind, stream in zip(packet["http2.type"], packet["http2.streamid"], strict=False)
            if kind == headers
        }
    )


def _of_postgresql(packets: Sequence[Fields]) -> int:
    """The start-up, simple queries, and whatever ends with a Sync."""
    counts = Counter(kind for packet in packets for kind in packet["pgsql.type"])
    return counts["Startup message"] + counts["Simple query"] + counts["Sync"]


def _of_mysql(packets: Sequence[Fields]) -> int:
    """The login, and commands but for those that have no answer: COM_QUIT, COM_STMT_CLOSE, COM_STMT_SEND_LONG_DATA."""
    without_answer = {"1", "25", "24"}
    commands = sum(kind not in without_answer for packet in packets for kind in packet["mysql.command"])
    return commands + any(packet["mysql.user"] for packet in packets)


RULES = {
    "http/1.1": Rules("http", ("http.request.method",), _occurrences("http.request.method"), "request lines"),
    "http/2": Rules("http2", ("http2.type", "http2.streamid"), _streams, "streams with a header block"),
    "redis": Rules("resp", ("resp.array.length",), _occurrences("resp.array.length"), "arrays of the client"),
    "memcached": Rules("memcache", ("memcache.command",), _occurrences("memcache.command"), "commands"),
    "postgresql": Rules("pgsql", ("pgsql.type",), _of_postgresql, "start-ups, queries, Syncs"),
    "mysql": Rules("mysql", ("mysql.command", "mysql.user"), _of_mysql, "logins, commands that are answered"),
}


def main() -> int:
    """Compare each folder; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    wrong = 0
    for folder in parser.parse_args().folders:
        for line, is_wrong in compare(folder):
            print(f"{folder.parent.name}: {line}", flush=True)
            wrong += is_wrong
    return 1 if wrong else 0


def compare(folder: Path) -> Iterator[tuple[str, bool]]:
    """Lines of one system, and whether each is of a difference."""
    captures = sorted(folder.glob("*.pcap"))
    with tempfile.TemporaryDirectory(prefix="twintap-beside-") as made:
        trace = f"{made}/trace"
        analyse([HostSource(path.stem, (path,)) for path in captures], trace, options=AnalysisOptions())
        servers, ours = _servers(Trace(trace)), _ours(Trace(trace))
    for (protocol, port), host in sorted(servers.items()):
        theirs = _theirs(folder / f"{host}.pcap", port, RULES[protocol])
        mine = ours.get((protocol, port), Counter())
        differing = {end: (mine[end], theirs[end]) for end in mine.keys() | theirs.keys() if mine[end] != theirs[end]}
        yield (
            f"{protocol} at port {port}: {mine.total():,} requests, tshark {theirs.total():,} "
            f"({RULES[protocol].words}), {len(mine.keys() | theirs.keys())} connections, {len(differing)} differ",
            False,
        )
        for (address, client_port), (of_ours, of_theirs) in sorted(differing.items()):
            yield f"  {protocol} from {address}:{client_port}: {of_ours} requests, tshark {of_theirs}", True


def _servers(trace: Trace) -> dict[tuple[str, int], str]:
    """By protocol and server's port, a host that has them."""
    columns = ["protocol", "server_port", "server_host"]
    rows = pl.DataFrame(trace.read("connections", columns)).with_columns(pl.col("protocol", "server_host").cast(str))
    return {
        (row["protocol"], row["server_port"]): row["server_host"]
        for row in rows.unique().sort(columns).iter_rows(named=True)
        if row["protocol"] in RULES and row["server_host"]
    }


def _ours(trace: Trace) -> dict[tuple[str, int], Counter[End]]:
    """By protocol and server's port, the requests of each connection."""
    connections = pl.DataFrame(
        trace.read("connections", ["connection_id", "client_addr", "client_port", "server_port", "protocol"])
    )
    exchanges = pl.DataFrame(trace.read("exchanges", ["connection_id"])).group_by("connection_id").len()
    found: dict[tuple[str, int], Counter[End]] = {}
    for row in connections.join(exchanges, on="connection_id", how="left").iter_rows(named=True):
        of_port = found.setdefault((str(row["protocol"]), row["server_port"]), Counter())
        of_port[str(row["client_addr"]), row["client_port"]] += row["len"] or 0
    return found


def _theirs(capture: Path, port: int, rules: Rules) -> Counter[End]:
    """The requests that tshark reads at a port, of each connection."""
    names = ("ip.src", "tcp.srcport", *rules.fields)
    argv = ["tshark", "-n", "-r", str(capture), "-d", f"tcp.port=={port},{rules.dissector}"]
    argv += ["-Y", f"tcp.dstport == {port}", "-T", "fields", "-E", "occurrence=a", "-E", "aggregator=|"]
    argv += [word for name in names for word in ("-e", name)]
    packets: dict[End, list[Fields]] = {}
    for line in subprocess.run(argv, check=True, capture_output=True, text=True).stdout.splitlines():
        address, client_port, *values = line.split("\t")
        of_packet = dict(zip(rules.fields, (value.split("|") if value else [] for value in values), strict=True))
        packets.setdefault((address, int(client_port)), []).append(of_packet)
    return Counter({end: rules.requests(sent) for end, sent in packets.items()})


if __name__ == "__main__":
    sys.exit(main())
