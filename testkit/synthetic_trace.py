"""Synthetic traces, generated from a template: the viewer is tested and measured on them without a capture.

A trace holds uploads: the client asks the proxy, the proxy writes to three of the storage hosts, and answers. Every
packet of an upload is a row of `TEMPLATE`; an upload is the template moved to its start, with delays drawn at random.
Vectorised: 10 million hops take about a minute, most of it for the events. Lossy links and the states of lone hops are
sprinkled over it. The tables keep the contracts of `collector.trace.schema`: the ledger adds up to the root's duration,
each seen end of a hop has its event, frames count up with time within a host.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from collector.hops.quality import quality_of
from collector.trace import schema
from collector.trace.model import CommandInfo, CounterInfo, HostInfo, PointInfo, ServiceInfo, TraceInfo
from collector.trace.writing import TraceWriter, write_trace
from testkit.tables import by_flow

EPOCH_NS = 1_790_000_000_000_000_000
REPLICAS = 3
CONNECTIONS_OF_UPLOAD = 1 + REPLICAS
DELAY_NS = 45_000
KINDS = [str(kind) for kind in schema.HopKind]
STATES = [str(state) for state in schema.HopState]
SERVICES = ["swift-proxy", "swift-object", "swift-auth"]
FLAGS = {"syn": 0x02, "syn_ack": 0x12, "data": 0x18, "ack": 0x10, "fin": 0x11, "rst": 0x04}


@dataclass(frozen=True, slots=True)
class Recipe:
    """The size and content of a synthetic trace."""

    uploads_count: int = 3
    storages_count: int = 3
    span_ns: int = 30_000_000  # the uploads' starts are spread over this
    lead_ns: int = 40_000_000  # from the command's start to the first packet
    lost_share: float = 0.0  # of data packets; each is sent again
    lone_share: float = 0.0  # of all packets, for each state that a lone hop can have
    argv: tuple[str, ...] | None = ("swift", "upload", "photos", "cat.jpg")
    hosts: Sequence[str] = ()  # names instead of client, proxy, storage1…
    target: str = "/v1/AUTH_test/photos/cat.jpg"
    counters: tuple[CounterInfo, ...] = ()
    spread_ns: int = 0  # by how much longer the server of an upload takes than it must, on average
    seed: int = 1
    offsets_ns: Sequence[int] = ()  # of each host's clock against the reference; 0 where not given
    owned: bool = False  # agents said who owns the ends of most connections
    first_upload: int = 0  # the number of the first upload
    first_frame: int = 1  # of each host
    link_confidence: float = 1.0  # of calls; below 1 they are linked by timing, and the next upload may have asked
    daemons_every: int = 0  # every so many uploads are asked by a daemon, not by a client; 0: none
    created_ns: int = EPOCH_NS  # names the make


def _connection_template(first_us: int, last_us: int, number: int) -> list[tuple[int, int, bool, str, int]]:
    """(µs, connection, from the client, kind, bytes): a handshake, a request in three parts, an answer, a close."""
    rows = [
        *[(0, True, "syn", 0), (70, False, "syn_ack", 0), (140, True, "ack", 0), (180, True, "data", 310)],
        *[(190, True, "data", 1448), (200, True, "data", 700), (260, False, "ack", 0), (290, False, "ack", 0)],
    ]
    end = last_us - first_us
    rows += [
        *[(end - 260, False, "data", 240), (end - 190, True, "ack", 0)],
        *[(end - 140, True, "fin", 0), (end - 70, False, "fin", 0), (end, True, "ack", 0)],
    ]
    return [(first_us + at, number, client, kind, size) for at, client, kind, size in rows]


TEMPLATE = sorted(
    _connection_template(0, 5_200, 0)
    + [
        row
        for replica in range(REPLICAS)
        for row in _connection_template(700 + 60 * replica, 3_900 + 250 * replica, replica + 1)
    ]
)
"""The packets of an upload, in order of time."""
ANSWER_US = 4_500
"""What the upload's own connection carries after this is its answer and its end."""


def write_synthetic_trace(path: Path, recipe: Recipe) -> None:
    """Write a trace of uploads to the directory `path`."""
    made = _Uploads(recipe)
    with write_trace(str(path)) as writer:
        hops = made.hops()
        writer.write_table("hops", hops)
        writer.write_table("quality", quality_of(by_flow(hops)))
        _write_events(writer, made)
        writer.write_table("connections", made.connections())
        writer.write_table("exchanges", made.exchanges())
        writer.write_table("spans", made.spans())
        writer.write_table("clocks", made.clocks())
        writer.write_info(made.info())


def write_long_synthetic_trace(path: Path | str, recipe: Recipe, uploads_at_once: int) -> None:
    """Write a trace as `write_synthetic_trace` does, a part of the uploads after the other, so that it may be larger
    than memory. Only the packets of the first part have their events."""
    with write_trace(str(path)) as writer:
        for first in range(0, recipe.uploads_count, uploads_at_once):
            count = min(uploads_at_once, recipe.uploads_count - first)
            share = recipe.span_ns / recipe.uploads_count
            part = replace(
                recipe,
                uploads_count=count,
                span_ns=int(share * count),
                lead_ns=recipe.lead_ns + int(share * first),
                first_upload=first,
                first_frame=1 + first * len(TEMPLATE),
                seed=recipe.seed + first,
            )
            made = _Uploads(part)
            if not first:
                _write_events(writer, made)
            hops = made.hops()
            tables = {"hops": hops, "quality": quality_of(by_flow(hops)), "connections": made.connections()}
            for name, table in (tables | {"exchanges": made.exchanges(), "spans": made.spans()}).items():
                writer.append(name, table)
        writer.write_table("clocks", made.clocks())
        writer.write_info(made.info())


class _Uploads:
    """Columns of all hops, in order of send time, before they become tables."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.hosts = [*recipe.hosts] or ["client", "proxy", *(f"storage{n + 1}" for n in range(recipe.storages_count))]
        self.rng = np.random.default_rng(recipe.seed)
        self.offsets = np.zeros(len(self.hosts), dtype=np.int64)
        self.offsets[: len(recipe.offsets_ns)] = recipe.offsets_ns
        count = recipe.uploads_count
        first = EPOCH_NS + recipe.lead_ns
        self.starts = first + np.sort(self.rng.integers(0, max(1, recipe.span_ns), count))
        self.starts[:1] = first
        extra = self.rng.exponential(recipe.spread_ns, count) if recipe.spread_ns else np.zeros(count)
        self.extra = extra.astype(np.int64)
        self._spread_template()
        self._draw_delays()
        self._lose_some()
        self._number_frames()

    def _spread_template(self) -> None:
        at, connection, client, kind, size = (np.array(column) for column in zip(*TEMPLATE, strict=True))
        uploads = self.recipe.uploads_count
        upload = np.repeat(np.arange(uploads), len(at))
        self.connection = np.tile(connection, uploads)
        self.from_client = np.tile(client, uploads)
        self.kind = np.tile([KINDS.index(each) for each in kind], uploads).astype(np.int8)
        self.size = np.tile(size, uploads)
        jitter = self.rng.integers(0, 9_000, len(upload))
        answers = np.tile((connection == 0) & (at > ANSWER_US), uploads)
        self.sent = self.starts[upload] + np.tile(at, uploads) * 1_000 + jitter + answers * self.extra[upload]
        storages = len(self.hosts) - 2
        server = np.where(self.connection == 0, 1, 2 + (upload + self.connection) % storages)
        client_host = np.where(self.connection == 0, 0, 1)
        self.source = np.where(self.from_client, client_host, server).astype(np.int16)
        self.target = np.where(self.from_client, server, client_host).astype(np.int16)
        self.connection_id = (upload + self.recipe.first_upload) * CONNECTIONS_OF_UPLOAD + self.connection
        self.attempt = np.ones(len(upload), dtype=np.int16)

    def _draw_delays(self) -> None:
        self.delay = np.maximum(4_000, self.rng.lognormal(np.log(DELAY_NS), 0.35, len(self.sent))).astype(np.int64)
        self.state = np.zeros(len(self.sent), dtype=np.int8)

    def _lose_some(self) -> None:
        recipe, data = self.recipe, self.kind == KINDS.index("data")
        lost = np.flatnonzero(data & (self.rng.random(len(data)) < recipe.lost_share))
        self.state[lost] = STATES.index("lost")
        for state in ("capture_dropped", "outside_window", "ambiguous", "unmatched"):
            lone = (self.rng.random(len(data)) < recipe.lone_share) & (self.state == 0)
            self.state[lone] = STATES.index(state)
        again = {name: getattr(self, name)[lost] for name in self._columns()}
        again["sent"] = again["sent"] + 1_900_000
        again["attempt"], again["state"] = again["attempt"] + 1, again["state"] * 0
        merged = {name: np.concatenate((getattr(self, name), again[name])) for name in self._columns()}
        order = np.argsort(merged["sent"], kind="stable")
        for name, column in merged.items():
            setattr(self, name, column[order])

    @staticmethod
    def _columns() -> tuple[str, ...]:
        return (
            *("connection", "from_client", "kind", "size", "sent", "source", "target"),
            *("connection_id", "attempt", "delay", "state"),
        )

    def _number_frames(self) -> None:
        """A frame for each seen end; of lone hops, `ambiguous` ones at their receiver."""
        matched, at_receiver = self.state == 0, self.state == STATES.index("ambiguous")
        self.sent_seen, self.received_seen = ~at_receiver, matched | at_receiver
        self.received = self.sent + self.delay
        self.send_frame = np.zeros(len(self.sent), dtype=np.uint32)
        self.receive_frame = np.zeros(len(self.sent), dtype=np.uint32)
        for host in range(len(self.hosts)):
            sends = np.flatnonzero((self.source == host) & self.sent_seen)
            receives = np.flatnonzero((self.target == host) & self.received_seen)
            order = np.argsort(np.concatenate((self.sent[sends], self.received[receives])), kind="stable")
            frames = np.empty(len(order), dtype=np.uint32)
            frames[order] = np.arange(len(order)) + self.recipe.first_frame
            self.send_frame[sends], self.receive_frame[receives] = frames[: len(sends)], frames[len(sends) :]

    def hops(self) -> pa.Table:
        unseen_sent, unseen_received = ~self.sent_seen, ~self.received_seen
        both = self.sent_seen & self.received_seen
        offset = np.where(self.kind == KINDS.index("data"), 310, 0)
        columns = {
            "connection_id": self.connection_id,
            "kind": _dictionary(self.kind, KINDS),
            "from_client": self.from_client,
            "send_host": _dictionary(self.source, self.hosts),
            "send_frame": pa.array(self.send_frame, mask=unseen_sent),
            "send_host_ns": pa.array(self.sent + self.offsets[self.source], mask=unseen_sent),
            "send_trace_ns": pa.array(self.sent, mask=unseen_sent),
            "receive_host": _dictionary(self.target, self.hosts),
            "receive_frame": pa.array(self.receive_frame, mask=unseen_received),
            "receive_host_ns": pa.array(self.received + self.offsets[self.target], mask=unseen_received),
            "receive_trace_ns": pa.array(self.received, mask=unseen_received),
            "stream_start": offset,
            "stream_end": offset + self.size,
            "attempt": self.attempt.astype(np.uint16),
            "state": _dictionary(self.state, STATES),
            "one_way_delay_ns": pa.array(self.delay, mask=~both),
            "uncertainty_ns": pa.array(np.full(len(self.sent), 3_000), mask=~both),
            "likely_error_ns": pa.array(np.full(len(self.sent), 400), mask=~both),
            "exchange_id": self.connection_id,
        }
        rest = (column for column in schema.HOPS if column.name not in columns)  # what no test asks for is 0
        columns |= {column.name: np.zeros(len(self.sent), column.type.to_pandas_dtype()) for column in rest}
        return pa.table(columns)

    def events_of(self, host: int) -> pa.Table:
        """The events of one host, in order of its frames."""
        sends = np.flatnonzero((self.source == host) & self.sent_seen)
        receives = np.flatnonzero((self.target == host) & self.received_seen)
        rows = np.concatenate((sends, receives))
        is_send = np.arange(len(rows)) < len(sends)
        frame = np.concatenate((self.send_frame[sends], self.receive_frame[receives]))
        times = np.concatenate((self.sent[sends], self.received[receives]))
        order = np.argsort(frame)
        rows, is_send = rows[order], is_send[order]
        zeros = np.zeros(len(rows), dtype=np.uint32)
        flags = np.array([FLAGS.get(kind, 0x10) for kind in KINDS], dtype=np.uint16)[self.kind[rows]]
        port = (40_000 + self.connection_id[rows] % 20_000).astype(np.uint16)
        server_port = np.where(self.connection[rows] == 0, 8080, 6200).astype(np.uint16)
        from_client, size = self.from_client[rows], self.size[rows].astype(np.uint32)
        addresses = [self.address(each) for each in range(len(self.hosts))]
        return pa.table(
            {
                "host": _constant(self.hosts[host], len(rows)),
                "point": _constant(f"{self.hosts[host]}/eth0", len(rows)),
                "frame": frame[order],
                "host_ns": times[order] + self.offsets[host],
                "direction": _dictionary((~is_send).astype(np.int8), ["send", "receive"]),
                "connection_id": self.connection_id[rows],
                "src_addr": _dictionary(self.source[rows], addresses),
                "src_port": np.where(from_client, port, server_port),
                "dst_addr": _dictionary(self.target[rows], addresses),
                "dst_port": np.where(from_client, server_port, port),
                "seq": (self.connection_id[rows] * 7919).astype(np.uint32),
                "ack": zeros,
                "flags": flags,
                "payload_len": size,
                "window": zeros.astype(np.uint16),
                "ip_id": zeros.astype(np.int32),
                "tsval": zeros,
                "tsecr": zeros,
                "captured_len": size + 66,
                "original_len": size + 66,
            }
        )

    def address(self, host: int) -> str:
        return f"10.77.{host // 200}.{10 + host % 200}"

    def connections(self) -> pa.Table:
        ids, first = np.unique(self.connection_id, return_index=True)
        server = np.where(self.from_client, self.target, self.source)[first]
        client = np.where(self.from_client, self.source, self.target)[first]
        addresses = [self.address(each) for each in range(len(self.hosts))]
        return pa.table(
            {
                "connection_id": ids,
                "client_host": _dictionary(client, self.hosts),
                "server_host": _dictionary(server, self.hosts),
                "client_addr": _dictionary(client, addresses),
                "client_port": (40_000 + ids % 20_000).astype(np.uint16),
                "server_addr": _dictionary(server, addresses),
                "server_port": np.where(ids % CONNECTIONS_OF_UPLOAD == 0, 8080, 6200).astype(np.uint16),
                "client_isn": pa.nulls(len(ids), pa.uint32()),
                "server_isn": pa.nulls(len(ids), pa.uint32()),
                "first_host_ns": self.sent[first],
                "last_host_ns": self.sent[first],
                "events_count": np.full(len(ids), 26, dtype=np.uint32),
                **(self._owners(ids) if self.recipe.owned else {}),
            }
        )

    def _owners(self, ids: NDArray[np.int64]) -> dict[str, pa.Array]:
        """Who owns the ends: clients of the proxy are of two programs, and every seventh connection is nobody's."""
        is_request, upload = ids % CONNECTIONS_OF_UPLOAD == 0, ids // CONNECTIONS_OF_UPLOAD
        client = np.where(is_request, np.where(upload % 3, "curl", "python3"), "swift-proxy-ser")
        server = np.where(is_request, "swift-proxy-ser", "swift-object-se")
        nobody, in_unit = ids % 7 == 6, client == "python3"
        return {
            "client_process": pa.array(client, mask=nobody),
            "client_pid": pa.array((100 + upload % 50).astype(np.uint32), mask=nobody),
            "client_user": pa.array(np.where(is_request, "ann", "swift"), mask=nobody),
            "client_unit": pa.array(np.full(len(ids), "loadgen.service"), mask=nobody | ~in_unit),
            "client_owner_evidence": pa.array(np.full(len(ids), "socket"), mask=nobody),
            "server_process": pa.array(server, mask=nobody),
            "server_pid": pa.array((700 + upload % 4).astype(np.uint32), mask=nobody),
            "server_user": pa.array(np.full(len(ids), "swift"), mask=nobody),
            "server_owner_evidence": pa.array(np.full(len(ids), "listener"), mask=nobody),
        }

    def exchanges(self) -> pa.Table:
        uploads = self.recipe.uploads_count
        connection = np.tile(np.arange(CONNECTIONS_OF_UPLOAD), uploads)
        upload = np.repeat(np.arange(uploads), CONNECTIONS_OF_UPLOAD)
        times = {name: self.starts[upload] + value[connection] for name, value in _phases().items()}
        server = np.where(connection == 0, 1, 2 + (upload + connection) % (len(self.hosts) - 2))
        root = connection == 0
        times |= {name: at + self.extra[upload] * root for name, at in times.items() if name.startswith("response")}
        return pa.table(
            {
                "exchange_id": self.exchange_ids(),
                "connection_id": self.exchange_ids(),
                "client_host": _dictionary(np.where(root, 0, 1), self.hosts),
                "server_host": _dictionary(server, self.hosts),
                "service": _dictionary((~root).astype(np.int8), SERVICES),
                **times,
                "uncertainty_ns": np.full(len(upload), 4_000),
                "likely_error_ns": np.full(len(upload), 500),
                "request_bytes": np.full(len(upload), 2_458),
                "response_bytes": np.full(len(upload), 240),
                "protocol": _constant("http/1.1", len(upload)),
                "method": _constant("PUT", len(upload)),
                "target": pa.array([self.recipe.target] * len(upload), pa.string()),
                "status": np.full(len(upload), 201, dtype=np.uint16),
                "transaction_id": pa.array([f"tx{each:012x}" for each in (upload + self.recipe.first_upload).tolist()]),
                "background": self.by_daemon(upload),
                "complete": np.ones(len(upload), dtype=bool),
                "status_class": _constant("ok", len(upload)),
                "outcome": _constant("ok", len(upload)),
            }
        )

    def by_daemon(self, upload: NDArray[np.int64]) -> NDArray[np.bool_]:
        every = self.recipe.daemons_every
        return upload % every == 0 if every else np.zeros(len(upload), dtype=bool)

    def exchange_ids(self) -> NDArray[np.int64]:
        """One for each connection."""
        return self.recipe.first_upload * CONNECTIONS_OF_UPLOAD + np.arange(
            self.recipe.uploads_count * CONNECTIONS_OF_UPLOAD
        )

    def spans(self) -> pa.Table:
        """The slowest replica is on the critical path; the root's own work is what remains."""
        uploads, ledger = self.recipe.uploads_count, _ledger()
        span, width = self.exchange_ids(), CONNECTIONS_OF_UPLOAD
        trace, root = span // width * width, span % width == 0
        longer = np.repeat(self.extra, width) * root
        columns = {name: np.tile(value, uploads) for name, value in ledger.items()}
        columns["work_ns"] = columns["work_ns"] + longer
        sure = self.recipe.link_confidence
        reason = "transaction_id" if sure == 1 else "timing"
        return pa.table(
            {
                "trace_id": trace,
                "span_id": span,
                "parent_span_id": pa.array(trace, mask=root),
                "link_reason": pa.array([reason] * len(span), mask=root).dictionary_encode(),
                "confidence": np.where(root, 1.0, sure),
                "alternative_parent_span_id": pa.array((trace + width) % (width * uploads), mask=root | (sure == 1)),
                "alternative_confidence": pa.array(np.full(len(span), (1 - sure) / 2), mask=root | (sure == 1)),
                "depth": (~root).astype(np.uint16),
                "critical_ns": np.tile(sum(ledger.values()), uploads) + longer,
                **columns,
            }
        )

    def clocks(self) -> pa.Table:
        count = len(self.hosts)
        return pa.table(
            {
                "host": _dictionary(np.arange(count), self.hosts),
                "from_host_ns": np.full(count, EPOCH_NS),
                "to_host_ns": np.full(count, int(self.sent[-1]) + 1 if len(self.sent) else EPOCH_NS),
                "offset_ns": self.offsets,
                "skew_ppb": np.zeros(count, dtype=np.int64),
                "uncertainty_ns": np.where(np.arange(count) == 0, 0, 3_000),
                "likely_error_ns": np.where(np.arange(count) == 0, 0, 400),
                "reference": np.arange(count) == 0,
                "method": pa.array(["traffic"] * count),
            }
        )

    def info(self) -> TraceInfo:
        recipe = self.recipe
        seen = np.concatenate((self.source[self.sent_seen], self.target[self.received_seen]))
        packets = np.bincount(seen, minlength=len(self.hosts)).tolist()
        last = int(self.sent[-1]) + 3_000_000 if len(self.sent) else EPOCH_NS
        command = CommandInfo(recipe.argv, self.hosts[0], EPOCH_NS, last, 0) if recipe.argv else None
        hosts = tuple(
            HostInfo(
                *(name, (self.address(at),), (PointInfo(f"{name}/eth0", "eth0", "ethernet"),), (f"{name}.pcapng",)),
                *(packets[at], packets[at], EPOCH_NS, last),
            )
            for at, name in enumerate(self.hosts)
        )
        services = (ServiceInfo("", 8080, SERVICES[0]), ServiceInfo("", 6200, SERVICES[1]))
        return TraceInfo(recipe.created_ns, "synthetic", hosts, recipe.counters, command, services)


def _write_events(writer: TraceWriter, uploads: _Uploads) -> None:
    tables = [uploads.events_of(host) for host in range(len(uploads.hosts))]
    writer.write_table("events", pa.concat_tables(tables).unify_dictionaries())


def _phases() -> dict[str, NDArray[np.int64]]:
    """The times of the exchange on each connection of an upload, relative to its start."""
    bounds = np.array([(0, 5_200), *((700 + 60 * each, 3_900 + 250 * each) for each in range(REPLICAS))])
    first, last = bounds[:, 0] * 1_000, bounds[:, 1] * 1_000
    delay = DELAY_NS
    return {
        "request_first_sent_trace_ns": first + 180_000,
        "request_first_received_trace_ns": first + 180_000 + delay,
        "request_last_sent_trace_ns": first + 200_000,
        "request_last_received_trace_ns": first + 200_000 + delay,
        "response_first_sent_trace_ns": last - 260_000,
        "response_first_received_trace_ns": last - 260_000 + delay,
        "response_last_sent_trace_ns": last - 260_000,
        "response_last_received_trace_ns": last - 260_000 + delay,
        "connect_start_trace_ns": first,
        "connected_trace_ns": first + 115_000,
    }


def _ledger() -> dict[str, NDArray[np.int64]]:
    phases = _phases()
    start, end = phases["connect_start_trace_ns"], phases["response_last_received_trace_ns"]
    connect = phases["request_first_sent_trace_ns"] - start
    request = phases["request_last_received_trace_ns"] - phases["request_first_sent_trace_ns"]
    response = phases["response_last_received_trace_ns"] - phases["response_first_sent_trace_ns"]
    critical = np.array([True] + [each == REPLICAS - 1 for each in range(REPLICAS)])
    columns = {"connect_ns": connect, "request_network_ns": request, "response_network_ns": response}
    columns = {name: np.where(critical, value, 0) for name, value in columns.items()}
    work = np.where(critical, end - start - connect - request - response, 0)
    work[0] -= (end - start)[-1]
    none = ("client_ns", "tls_ns", "queue_ns", "fan_out_wait_ns", "server_or_network_ns", "stall_ns")
    others = dict.fromkeys(none, np.zeros_like(work))
    return {**columns, **others, "work_ns": work}


def _dictionary(codes: NDArray[np.generic], names: Sequence[str]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), pa.array(list(names), pa.string()))


def _constant(text: str, count: int) -> pa.DictionaryArray:
    return _dictionary(np.zeros(count, dtype=np.int32), [text])
