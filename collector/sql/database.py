"""Runs SQL over a trace: DuckDB reads of the tables those columns that a query names, a group of rows at a time.

A query can read the trace and nothing else: no file, no network, no extension, no variable of the environment; and its
settings are fixed before it runs. It ends with an error when its time or its memory is used up.

Source: "Securing DuckDB" in DuckDB's manual, for the settings. Cost: what the query's columns take to read, once for
each time it names their table; what is larger than the memory allowed is refused, since nothing is spilled to disk.
"""

import atexit
import gc
import itertools
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from msgspec import Struct
from numpy.typing import NDArray

from collector.sql.views import STORED, VIEWS
from collector.trace.model import TraceInfo
from collector.trace.reading import Trace
from collector.trace.schema import ADDED_TABLES, TABLES
from tracer.errors import InputError, ResourceError, TracerError

atexit.register(gc.unfreeze)  # else DuckDB's binding complains of what `tracer` keeps from the garbage collector
OPTIONAL = frozenset({"samples"}) | ADDED_TABLES
"""Tables that not every trace has; without one its view is empty."""
READS = frozenset({duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN, duckdb.StatementType.MULTI})
"""Kinds of statements that only read; MULTI is PIVOT, which is prepared by statements of its own."""
INTERRUPTED = "Query interrupted"
ONLY_FOUND = {
    "requests": "WHERE root_id IN (SELECT root_id FROM found)",
    "packets": "WHERE request_id IN (SELECT id FROM requests)",
}
"""What narrows a view to the requests that were found."""
SCHEMA_STEP = "tracer query TRACE .schema lists tables and columns"


class QueryLimits(Struct, frozen=True):
    """What a query may take: memory in MiB, threads, and seconds (None for any)."""

    memory_mib: int = 2048
    threads: int = 2
    seconds: float | None = None


DEFAULT_LIMITS = QueryLimits()


class Database:
    """A trace's tables and views, ready for queries; for one thread at a time.

    Arguments: `trace`, which is read while a query runs; `limits` of each query; `only`, the `trace_id`s of some
    requests, to which the views `requests` and `packets` are narrowed.
    """

    def __init__(
        self, trace: Trace, limits: QueryLimits = DEFAULT_LIMITS, only: NDArray[np.int64] | None = None
    ) -> None:
        """Raises: `InputError` if there is no trace."""
        self._trace, self._limits = trace, limits
        info, self._failures = trace.info(), list[TracerError]()
        self._created_ns = info.created_ns
        self._connection = duckdb.connect(config={"threads": limits.threads, "memory_limit": f"{limits.memory_mib}MiB"})
        self._connection.execute(f"CREATE SCHEMA {STORED}")
        for name, schema in TABLES.items():
            is_there = name not in OPTIONAL or trace.table_bytes(name) > 0
            self._add_stored(name, _Stored(trace, name, self._failures) if is_there else schema.empty_table())
        for name, rows in _of_info(info).items():
            self._add_stored(name, rows)
        if only is not None:
            self._connection.register("found", pa.table({"root_id": only}))
        for view in VIEWS:
            narrowed = "" if only is None else ONLY_FOUND.get(view.name, "")
            self._connection.execute(f"CREATE VIEW {view.name} AS SELECT * FROM ({view.definition}) {narrowed}")
        for setting in (
            "SET temp_directory = ''",
            "SET enable_external_access = false",
            "SET python_enable_replacements = false",
            "SET lock_configuration = true",
        ):
            self._connection.execute(setting)
        self._lock = threading.Lock()

    def _add_stored(self, name: str, rows: object) -> None:
        self._connection.register(f"stored_{name}", rows)
        self._connection.execute(f"CREATE VIEW {STORED}.{name} AS SELECT * FROM stored_{name}")

    def close(self) -> None:
        """Give back what it holds."""
        self._connection.close()

    @contextmanager
    def run(self, query: str) -> Iterator[pa.RecordBatchReader]:
        """The rows of a query, to be read within the context.

        Raises: `InputError` for what is no query, one query, or a query that changes something; for one that takes too
        long; `ResourceError` for one that takes too much memory; as `Trace`, for a trace that cannot be read. What
        reading the rows raises is raised likewise.
        """
        with self._lock, self._errors():
            _check_reads(self._connection, query)
            with self._time_limit():
                yield _plain_rows(self._connection.sql(query).to_arrow_reader())
            if self._trace.info().created_ns != self._created_ns:
                raise InputError(f"{self._trace.url} was replaced while it was read", "ask again")

    @contextmanager
    def _time_limit(self) -> Iterator[None]:
        if self._limits.seconds is None:
            yield
            return
        timer = threading.Timer(self._limits.seconds, self._connection.interrupt)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:  # what DuckDB makes of Ctrl-C while it works
            if INTERRUPTED in str(error):
                raise KeyboardInterrupt from None
            raise
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            if self._failures:
                raise self._failures.pop() from None
            if (found := _meaning(str(error), self._limits)) is not None:
                raise found from None
            if not isinstance(error, duckdb.Error):
                raise
            raise InputError(f"no result: {_words(str(error))}", SCHEMA_STEP) from None


def _meaning(message: str, limits: QueryLimits) -> TracerError | None:
    """What an error of DuckDB is to the operator, if it is about a limit: it may come by way of Arrow."""
    if "Out of Memory Error" in message:
        what = f"the query takes more than {limits.memory_mib:,} MiB of memory"
        return ResourceError(what, "ask for fewer rows or columns at once, or allow more")
    if "INTERRUPT Error" in message:
        seconds = "" if limits.seconds is None else f": it took longer than {limits.seconds:g} s"
        return InputError(f"the query was ended{seconds}", "ask for fewer rows, or allow more time")
    return None


class _Stored(ds.InMemoryDataset):
    """A stored table in the form that DuckDB scans: a dataset that is empty but for its scanner, which reads the
    trace."""

    def __init__(self, trace: Trace, name: str, failures: list[TracerError]) -> None:
        super().__init__(TABLES[name].empty_table())
        self._trace, self._name, self._failures = trace, name, failures

    def scanner(self, columns: Sequence[str] | None = None, filter: pc.Expression | None = None) -> "_Scanner":
        """A scan of some columns of the rows that fit."""
        return _Scanner(self._trace, self._name, columns, filter, self._failures)


class _Scanner(Struct, frozen=True):
    trace: Trace
    name: str
    columns: Sequence[str] | None
    fits: pc.Expression | None
    failures: list[TracerError]  # where DuckDB would make a text of an error

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows, a group at a time."""
        schema = TABLES[self.name]
        names = schema.names if self.columns is None else list(self.columns)
        wanted = pa.schema([schema.field(name) for name in names])
        return pa.RecordBatchReader.from_batches(wanted, self._batches(wanted))

    def _batches(self, wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
        asked = frozenset(re.findall(r"\w+", str(self.fits)))  # names, and words of texts, which do no harm
        read = [name for name in TABLES[self.name].names if name in wanted.names or name in asked]
        try:
            for part in self.trace.batches(self.name, read):
                rows = part if self.fits is None else part.filter(self.fits)
                yield from rows.select(wanted.names).cast(wanted).to_batches()
        except TracerError as error:
            self.failures.append(error)
            raise


def _plain_rows(rows: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """The same rows with a name of its own for each column, and texts for intervals, which few formats have."""
    fields, taken = list[pa.Field](), set[str]()
    for field in rows.schema:
        numbered = (f"{field.name}_{number}" for number in itertools.count(2))
        name = next(each for each in itertools.chain([field.name], numbered) if each not in taken)
        taken.add(name)
        fields.append(pa.field(name, pa.string() if pa.types.is_interval(field.type) else field.type))
    schema = pa.schema(fields)

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in rows:
            columns = [_intervals(each) if pa.types.is_interval(each.type) else each for each in batch.columns]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _intervals(column: pa.Array) -> pa.Array:
    """`00:00:01.500000000`, after months and days if there are any."""
    texts: list[str | None] = []
    for each in column.to_pylist():
        if each is None:
            texts.append(None)
            continue
        months, days, ns = each
        seconds, rest = divmod(abs(ns), 10**9)
        clock = f"{'-' if ns < 0 else ''}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{rest:09}"
        texts.append(f"{f'{months} months ' if months else ''}{f'{days} days ' if days else ''}{clock}")
    return pa.array(texts, pa.string())


def _check_reads(connection: duckdb.DuckDBPyConnection, query: str) -> None:
    """Raises: `InputError` unless the text is one query that only reads."""
    statements = connection.extract_statements(query)
    if len(statements) != 1:
        raise InputError(f"{len(statements)} statements, not one query", "give one SELECT")
    if statements[0].type not in READS:
        raise InputError(f"{statements[0].type.name} changes something; a trace is read only", "give a SELECT")


def _of_info(info: TraceInfo) -> Mapping[str, pa.Table]:
    """What `trace.json` holds, as tables."""
    hosts: Iterable[dict[str, object]] = (
        {
            "host": host.host,
            "addresses": list(host.addresses),
            "files": list(host.files),
            "packets": host.packets_count,
            "first_host_ns": host.first_host_ns,
            "last_host_ns": host.last_host_ns,
            "is_on_path": host.on_path,
        }
        for host in info.hosts
    )
    counters = (
        {
            "host": each.host,
            "name": each.name,
            "severity": each.severity,
            "count": each.count,
            "remedy": each.remedy,
        }
        for each in info.counters
    )
    names = (
        {"address": each.address, "name": each.name or None, "others": list(each.others), "file": each.file}
        for each in info.names
    )
    return {
        "names": pa.Table.from_pylist(list(names), NAMES),
        "hosts": pa.Table.from_pylist(list(hosts), HOSTS),
        "counters": pa.Table.from_pylist(list(counters), COUNTERS),
    }


HOSTS = pa.schema(
    {
        "host": pa.string(),
        "addresses": pa.list_(pa.string()),
        "files": pa.list_(pa.string()),
        "packets": pa.int64(),
        "first_host_ns": pa.int64(),
        "last_host_ns": pa.int64(),
        "is_on_path": pa.bool_(),
    }
)
NAMES = pa.schema({"address": pa.string(), "name": pa.string(), "others": pa.list_(pa.string()), "file": pa.string()})
COUNTERS = pa.schema(
    {"host": pa.string(), "name": pa.string(), "severity": pa.string(), "count": pa.int64(), "remedy": pa.string()}
)


def _words(message: str) -> str:
    """DuckDB's message on one line, without the copy of the query."""
    lines = [line.strip() for line in message.split("\n\nLINE ", maxsplit=1)[0].splitlines()]
    return " ".join(line for line in lines if line)
