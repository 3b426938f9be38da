"""Explains one packet field by field: with tshark's dissectors if tshark and pyshark are installed, else our own
decoder.

tshark gets only this packet: its bytes are read from the capture and sent through a pipe. It runs without name
resolution (so it queries no server), with limits on CPU time, memory and wall time; pyshark reads its output. Any
failure is reported, and our own fields are shown instead.
"""

import os
import resource
import shutil
import subprocess
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec

from flask import Flask, Response, abort, jsonify, request
from msgspec import Struct, to_builtins

from collector.queries import CapturedPacket, PacketFields, TraceView, captured_packet, packet_file
from tracer.errors import InputError
from viewer.wording import packet_facts

WALL_SECONDS = 10
CPU_SECONDS = 5
MEMORY_BYTES = 2 << 30
MOST_FIELDS = 1_500
LONGEST_TEXT = 1_000
MOST_BYTES = 4_096
"""Of a packet, shown as hexadecimal."""
TSHARK = ("-r", "-", "-n", "-T", "pdml", "-o", "tcp.desegment_tcp_streams:FALSE", "--enable-heuristic", "http_tcp")
DISSECTORS = {
    **{"http/1.1": "http", "http/2": "http2", "tls": "tls", "postgresql": "pgsql", "mysql": "mysql", "redis": "resp"},
    **{"memcached": "memcache", "mongodb": "mongo", "kafka": "kafka", "mqtt": "mqtt", "amqp": "amqp", "ssh": "ssh"},
}
"""By protocol: tshark's dissector. Others tshark recognises by itself, or not at all."""
NO_TSHARK = "for every field, install tshark and pyshark on the viewer's machine"


class Field(Struct, frozen=True):
    """A field of a packet: where its bytes are (`at` and `size`, -1 if it has none), and what they mean."""

    text: str
    at: int = -1
    size: int = 0


class Layer(Struct, frozen=True):
    """A protocol's fields, in their order."""

    name: str
    fields: tuple[Field, ...]


class Explanation(Struct, frozen=True):
    """A packet in layers, and its bytes where the capture is there; `note` says what is missing and why."""

    by: str
    note: str
    layers: tuple[Layer, ...]
    bytes: str = ""


def add_explaining(server: Flask, trace: TraceView) -> None:
    """Serve explanations of the packets of one trace."""

    @server.get("/api/hops/<int:number>/fields")
    def fields(number: int) -> Response:
        hop = trace.hop(number)
        end = request.args.get("end", "sent")
        packet = None if hop is None else hop.received_packet if end == "received" else hop.sent_packet
        if packet is None:
            abort(404, "that packet was not seen there")
        return jsonify(to_builtins(explain(trace, packet, hop.connection_id if hop else None)))


def explain(trace: TraceView, packet: PacketFields, connection_id: int | None = None) -> Explanation:
    """The fields of a packet, from the decoder that knows most of them; of a connection whose protocol is known, by its
    dissector."""
    try:
        captured = captured_packet(trace, packet)
    except InputError as error:
        return Explanation("our decoder", str(error), own_layers(packet))
    cut = "" if len(captured.data) == captured.original_len else f"{len(captured.data):,} of its bytes were captured"
    shown = captured.data[:MOST_BYTES].hex()
    known = None if connection_id is None else trace.protocol_at(connection_id)
    layers, trouble = dissect(captured, known)
    if layers:
        return Explanation("tshark", cut, layers, shown)
    return Explanation("our decoder", "; ".join(part for part in (trouble, cut) if part), own_layers(packet), shown)


def own_layers(packet: PacketFields) -> tuple[Layer, ...]:
    """The fields that the tables keep."""
    return (
        Layer("TCP/IP, as the trace keeps it", tuple(Field(f"{name}: {text}") for name, text in packet_facts(packet))),
    )


def dissect(captured: CapturedPacket, known: tuple[str, int] | None = None) -> tuple[tuple[Layer, ...], str]:
    """The layers that tshark finds, or none and why.

    Arguments: `known`, the protocol of the packet's connection, and its server's port.
    """
    program = shutil.which("tshark")
    if program is None:
        return (), NO_TSHARK
    if find_spec("pyshark") is None:
        return (), NO_TSHARK
    reader = import_module("pyshark.tshark.output_parser.tshark_xml")
    printed, trouble = _run_tool([program, *TSHARK, *_decode_as(known)], packet_file(captured))
    start, end = printed.find(b"<packet>"), printed.rfind(b"</packet>")
    if start < 0 or end < 0:
        return (), trouble or "tshark could not read it"
    found = reader.packet_from_xml_packet(printed[start : end + len(b"</packet>")])
    return tuple(_layer(layer.layer_name, layer._all_fields.values()) for layer in found.layers), ""


def _decode_as(known: tuple[str, int] | None) -> tuple[str, ...]:
    """Options by which tshark reads a port as the protocol that was recognised there, whatever is usual at it."""
    dissector = DISSECTORS.get(known[0]) if known else None
    return ("-d", f"tcp.port=={known[1]},{dissector}") if known and dissector else ()


def _layer(name: str, containers: Sequence[object]) -> Layer:
    fields = [field for container in containers for field in container.all_fields if _is_of_the_packet(field)]  # type: ignore[attr-defined]
    found = [Field(_text(field), int(field.pos or -1), int(field.size or 0)) for field in fields[:MOST_FIELDS]]
    in_order = sorted(found, key=lambda field: (field.at, -field.size))  # pyshark puts those of one name together
    return Layer(name.upper(), tuple(field for field in in_order if field.text))


def _is_of_the_packet(field: object) -> bool:
    """Not hidden, and no remark of the dissector's."""
    return not getattr(field, "hide", False) and not str(getattr(field, "name", "")).startswith("_ws.")


def _text(field: object) -> str:
    return str(getattr(field, "showname", None) or getattr(field, "show", None) or "")[:LONGEST_TEXT]


def _run_tool(argv: Sequence[str], given: bytes) -> tuple[bytes, str]:
    """What a program prints for what it is given, within limits; and what went wrong."""
    environment = {"PATH": os.environ.get("PATH", ""), "HOME": "/nonexistent", "LC_ALL": "C.UTF-8"}
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    ) as process:
        resource.prlimit(process.pid, resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        resource.prlimit(process.pid, resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        try:
            printed, _ = process.communicate(given, WALL_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            return b"", f"tshark took longer than {WALL_SECONDS} s"
    return printed, "" if process.returncode == 0 else f"tshark ended with status {process.returncode}"
