"""Writes the copy of a trace, and checks it.

1. All names, addresses and words of the trace are noted, column by column: what each column holds is said by `RULES`,
   and a column of texts that has no rule is an error (a test holds that every column of the schema has one).
2. Every table is written again with the replacements. Sentences are replaced last, since they name what others hold.
3. The copy is read again: none of what was replaced is in any text of it, and nothing of a given list is part of any.
   If something is, there is no copy.

Kept: times, sizes, ports, sequence numbers, ids of rows, protocols, statuses, methods in capitals, known software.
Left out: the command that was recorded, the operator's own rules for secrets, the evidence of services' names, and the
words of lines of logs and of spans, which may quote anything.

Cost: four passes over the columns of texts, one over the rest. Memory: the distinct texts, and a group of rows.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from collector.scrub.names import Names, words_of
from collector.trace.model import AddressName, CommandInfo, CounterInfo, HostInfo, TraceInfo
from collector.trace.reading import Trace
from collector.trace.schema import TABLES
from collector.trace.writing import write_trace
from tracer.errors import InputError

KEPT, SENTENCE, LEFT_OUT = "kept", "sentence", "left_out"
_SIDES = ("client", "server")
_HOSTS = ("host", "peer_host", "client_host", "server_host", "send_host", "receive_host")
_ADDRESSES = ("src_addr", "dst_addr", *(f"{way}{end}_addr" for way in ("", "translated_") for end in _SIDES))
_TEXTS = (
    *("target", "authority", "bucket", "object_key", "upload", "transaction_id", "response_transaction_id"),
    *("user_agent", "tls_server_name", "tls_alpn", "tls_alpn_offered", "trace_id", "span_id", "parent_span_id"),
    "client_span_id",
    *(f"{end}_{what}" for end in _SIDES for what in ("process", "exe", "user", "unit", "container", "pod")),
)
_KEPT = (
    *("direction", "protocol", "protocol_evidence", "changed_to", "kind", "state", "operation", "status_class"),
    *("ending", "outcome", "reason", "severity", "link_reason"),
    *("client_owner_evidence", "server_owner_evidence", "tls_versions_offered", "tls_version", "tls_cipher"),
    *("tls_resumption", "tls_alert", "tls_alert_from", "tls_evidence"),
    *("format", "joined_by", "phases", "side"),
)
RULES: dict[str, str] = {
    **dict.fromkeys(_HOSTS, "host"),
    **dict.fromkeys(_ADDRESSES, "address"),
    **dict.fromkeys(_TEXTS, "text"),
    **dict.fromkeys(_KEPT, KEPT),
    **dict.fromkeys(("service", "client_service"), "service"),
    **dict.fromkeys(("text", "remedy", "evidence", "closing", "result"), SENTENCE),
    "point": "point",
    "method": "method",
    "metric": "metric",
    **dict.fromkeys(("source", "name"), LEFT_OUT),
}
"""By column what its texts are: the method of `Names` that replaces them, or `KEPT`."""
OF_TABLE = {
    ("clocks", "method"): KEPT,
    ("silences", "cause"): KEPT,
    ("findings", "cause"): SENTENCE,
    ("annotations", "text"): LEFT_OUT,
}
"""Where a column of one name holds something else in one table."""
QUOTES = "log_lines_unread"
"""The counter whose remedy quotes a line of a log (`collector.annotations.logs.reading`)."""
Place = tuple[str, str]
"""A table and a column."""


class ScrubSummary(Struct, frozen=True):
    """What was replaced, and how much of it was looked for in the copy, in vain."""

    names: Names
    checked_count: int


def scrub(trace: Trace, url: str, forbidden: Sequence[str] = ()) -> ScrubSummary:
    """Write the copy of a trace to `url`.

    Arguments: `forbidden`, texts that must be nowhere in the copy, in whatever case.
    Raises: `InputError` if something would be left, then there is no copy; as `Trace`, and as `write_trace`.
    """
    info, known = trace.info(), _texts_of_tables(trace)
    every = (text for texts in (*known.values(), _texts_of(info)) for text in texts)
    names = Names(frozenset(word for text in every for word in words_of(text)))
    made = _scrub_info(info, names)
    for place, texts in known.items():
        if rule_of(*place) not in (KEPT, SENTENCE):
            for text in texts:
                _replacement(names, rule_of(*place))(text)
    made = replace(made, counters=tuple(replace(each, remedy=_scrub_remedy(each, names)) for each in made.counters))
    with write_trace(url) as writer:
        for table, schema in TABLES.items():
            if trace.table_bytes(table):
                for part in trace.batches(table, schema.names):
                    writer.append(table, _scrub_rows(table, part, names))
            writer.finish(table)
        _check(_texts_of_tables(writer.written), _texts_of(made), names, forbidden)
        writer.write_info(made)
    return ScrubSummary(names, names.originals_count())


def rule_of(table: str, column: str) -> str:
    """What a column of texts holds. Raises: KeyError for one without a rule."""
    return OF_TABLE.get((table, column)) or RULES[column]


def text_columns() -> Iterator[Place]:
    """The columns of texts of all tables."""
    for table, schema in TABLES.items():
        for column in schema:
            if pa.types.is_dictionary(column.type) or pa.types.is_string(column.type):
                yield table, column.name


def _texts_of_tables(trace: Trace) -> Mapping[Place, Sequence[str]]:
    """The texts of each column, in the order in which they are first seen."""
    found: dict[Place, dict[str, None]] = {}
    for table, column in text_columns():
        texts = found.setdefault((table, column), {})
        if trace.table_bytes(table):
            for part in trace.batches(table, [column]):
                texts.update(dict.fromkeys(text for text in pc.unique(part[column]).to_pylist() if text))
    return {place: list(texts) for place, texts in found.items()}


def _texts_of(info: TraceInfo) -> Sequence[str]:
    """The texts of `trace.json` that may name something."""
    hosts = [text for host in info.hosts for text in (host.host, *host.addresses, *host.files)]
    points = [text for host in info.hosts for point in host.points for text in (point.point, point.interface)]
    services = [text for each in info.services for text in (each.host, each.name, each.evidence)]
    command = [] if info.command is None else [*info.command.argv, info.command.host]
    names = [text for each in info.names for text in (each.address, each.name, each.file, *each.others)]
    names += [host.file_name for host in info.hosts]
    return [*hosts, *points, *services, *command, *names, *(each.remedy for each in info.counters)]


def _replacement(names: Names, rule: str) -> Callable[[str], str]:
    made: Callable[[str], str] = getattr(names, rule)
    return made


def _scrub_rows(table: str, rows: pa.Table, names: Names) -> pa.Table:
    for place, column in enumerate(rows.schema):
        if pa.types.is_dictionary(column.type) or pa.types.is_string(column.type):
            rule = rule_of(table, column.name)
            if rule != KEPT:
                rows = rows.set_column(place, column, _scrub_column(rows[column.name], _replacement(names, rule)))
    return rows


def _scrub_column(column: pa.ChunkedArray, made: Callable[[str], str]) -> pa.ChunkedArray:
    """Each distinct text is replaced once."""
    chunks = []
    for chunk in column.cast(pa.string()).dictionary_encode().chunks:
        texts = pa.array([text and made(text) for text in chunk.dictionary.to_pylist()], pa.string())
        chunks.append(texts.take(chunk.indices).cast(column.type))
    return pa.chunked_array(chunks, column.type)


def _scrub_info(info: TraceInfo, names: Names) -> TraceInfo:
    """`trace.json`, but for the sentences in it."""
    return replace(
        info,
        secrets=dataclasses.replace(info.secrets, more=""),
        hosts=tuple(_scrub_host(host, names) for host in info.hosts),
        names=tuple(_scrub_name(each, names) for each in info.names),
        counters=tuple(replace(each, host=each.host and names.host(each.host)) for each in info.counters),
        command=info.command and _scrub_command(info.command, names),
        services=tuple(
            replace(each, host=each.host and names.host(each.host), name=names.service(each.name), evidence="")
            for each in info.services
        ),
    )


def _scrub_name(each: AddressName, names: Names) -> AddressName:
    """The name of an address, as of a host; without the file that has it."""
    made, *others = (name and names.host(name) for name in (each.name, *each.others))
    return AddressName(names.address(each.address), made, "", tuple(others))


def _scrub_remedy(counter: CounterInfo, names: Names) -> str:
    """What a counter says to do; one of lines of logs quotes the first of them."""
    return "" if counter.name == QUOTES else names.sentence(counter.remedy)


def _scrub_command(command: CommandInfo, names: Names) -> CommandInfo:
    return replace(command, argv=("command",), host=names.host(command.host))


def _scrub_host(host: HostInfo, names: Names) -> HostInfo:
    name = names.host(host.host)
    return replace(
        host,
        host=name,
        addresses=tuple(names.address(address) for address in host.addresses),
        file_name=host.file_name and names.host(host.file_name),
        points=tuple(
            replace(point, point=names.point(point.point), interface=names.interface(point.interface))
            for point in host.points
        ),
        files=tuple(names.file(file, f"{name}-{number}.pcap") for number, file in enumerate(host.files, 1)),
    )


def _check(
    copied: Mapping[Place, Sequence[str]], document: Sequence[str], names: Names, forbidden: Sequence[str]
) -> None:
    """Raises: `InputError` if a text of the copy has something that was to be replaced, or holds a forbidden one."""
    unwanted = [text.casefold() for text in forbidden if text.strip()]
    for (table, column), texts in {**copied, ("trace", "json"): document}.items():
        is_kept = (table, column) in copied and rule_of(table, column) == KEPT
        for text in texts:
            left = None if is_kept else names.left_in(text)
            left = left or next((each for each in unwanted if each in text.casefold()), None)
            if left is not None:
                raise InputError(f"the copy would still have {left!r} in {table}.{column}", "nothing was written")
