"""What a request costs after its packets are paired: `python -m benchmarks.requests_speed [--most 1000000]`.

Exchanges, links, ledger and findings, each as `collector.analysis` runs it, on many copies of the bundled capture
`bench-2-puts` (its hops, heads and connections), laid over each other so that about `AT_ONCE` copies run at a time,
whatever the number: with their transaction ids, each copy's its own, and without any heads. Shown are exchanges a
second, as the clock on the wall counts them (partitions on all processors, as `collector.analysis` spreads them) and
for each second of CPU time of all threads, that also by stage (of a partition by its thread's own time; what partitions
counted is added up beside linking, and is in its figure); and the peak resident memory of the process, tables of hops
included. Making the copies is not counted.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.processes import ROOT, run
from collector.analysis import analyse
from collector.decode.sources import host_sources
from collector.execution.ordered_pool import run_in_order
from collector.findings import symptoms
from collector.findings.diagnosis import build_findings
from collector.findings.requests import EXCHANGE_COLUMNS
from collector.hops.captured_until import CapturedUntil
from collector.requests import spans
from collector.requests.exchanges import build_exchanges
from collector.services.service_names import ServiceNames
from collector.trace.model import TraceInfo
from collector.trace.reading import Trace
from collector.trace.schema import ID_STRIDE

CAPTURE = ROOT / "captures" / "bench-2-puts"
SIZES = (10_000, 100_000, 1_000_000)
AT_ONCE = 8
PART = 20_000
"""Exchanges in a partition, about as `collector.decode.partitions` makes them."""
STRIDE = 1 << 20
"""Ids of connections of one copy begin so far after those of the copy before."""
WORKERS = os.cpu_count() or 1
MADE_AT_ONCE = 4 * WORKERS
"""Partitions that are made, which is not counted, before they are rebuilt."""
Tables = dict[str, pa.Table]
Part = tuple[pa.Table, pa.Table, pa.Table]
"""Hops, heads and connections."""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print the table; the exit status is that of the process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=SIZES[-1], help="exchanges of the largest trace")
    parser.add_argument("--once", nargs=2, metavar=("COUNT", "IDS"), help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.once:
        print(json.dumps(_measure(int(options.once[0]), options.once[1] == "shown")))
        return 0
    print("\n".join(table(options.most)))
    return 0


def table(most: int) -> list[str]:
    """Rows of Markdown, one for each size and with ids shown or hidden; each measured in a process of its own."""
    lines = [
        "| exchanges | ids | exchanges/s | exchanges/CPU-s | exchanges | links, ledger | findings | peak RSS |",
        "|---:|---|---:|---:|---:|---:|---:|---:|",
    ]
    for count in (size for size in SIZES if size <= most):
        for ids in ("shown", "hidden"):
            words = [sys.executable, "-m", "benchmarks.requests_speed", "--once", str(count), ids]
            ran = run(words)
            seen = json.loads(ran.last_line)
            took = [seen[stage] for stage in ("exchanges_s", "spans_s", "findings_s")]
            seconds = (seen["wall_s"], sum(took), *took)
            rates = " | ".join(f"{seen['count'] / each:,.0f}" for each in seconds)
            lines.append(f"| {seen['count']:,} | {ids} | {rates} | {ran.peak_rss_bytes / 2**20:,.0f} MiB |")
    return lines


def _measure(count: int, with_ids: bool) -> dict[str, float]:
    """Seconds of the stages over about so many exchanges."""
    one, info = _template()
    rebuilt = partial(_rebuild_partition, ServiceNames(info.services))
    copies = max(1, count // one["exchanges"].num_rows)
    each = max(1, PART // one["exchanges"].num_rows)
    took = dict.fromkeys(("wall_s", "exchanges_s", "spans_s", "findings_s"), 0.0)
    done: list[_Rebuilt] = []
    with ThreadPoolExecutor(WORKERS) as pool:
        parts = enumerate(_parts(one, copies, each, with_ids))
        while some := list(islice(parts, MADE_AT_ONCE)):
            before = len(done)
            work = partial(run_in_order, pool, WORKERS, some, rebuilt, lambda _, made: done.append(made))
            spent_s = _cpu_seconds(took, work)
            of_exchanges = sum(one.exchanges_s for one in done[before:])
            of_findings = sum(one.findings_s for one in done[before:])
            took["exchanges_s"] += spent_s * of_exchanges / (of_exchanges + of_findings)
            took["findings_s"] += spent_s * of_findings / (of_exchanges + of_findings)
        exchanges = pa.concat_tables([one.exchanges for one in done]).unify_dictionaries()
        asked, linked = exchanges.select(EXCHANGE_COLUMNS), []
        counted = [one.wrong for one in done]

        def link() -> None:
            """As `collector.analysis` does: what was counted of all partitions is added up meanwhile."""
            wrong = pool.submit(symptoms.merge_symptoms, counted)
            linked.append((spans.link(exchanges), wrong.result()))

        took["spans_s"] += _cpu_seconds(took, link)
    ((table, wrong),) = linked
    clocks = one["clocks"]
    took["findings_s"] += _cpu_seconds(
        took, lambda: build_findings(wrong, [asked], [table], clocks, info, CapturedUntil(0), None)
    )
    return took | {"count": exchanges.num_rows}


class _Rebuilt(NamedTuple):
    """What a partition gives, and the time of its thread that each stage took."""

    exchanges: pa.Table
    wrong: symptoms.Symptoms
    exchanges_s: float
    findings_s: float


def _rebuild_partition(names: ServiceNames, numbered: tuple[int, Part]) -> _Rebuilt:
    """As `collector.analysis` rebuilds a partition, once its hops are aligned."""
    number, (hops, messages, connections) = numbered
    began_s = time.thread_time()
    built = build_exchanges(hops, messages, connections, names, number * ID_STRIDE + 1)
    built_s = time.thread_time()
    wrong = symptoms.collect_symptoms(built.hops, connections, built.exchanges, CapturedUntil(0))
    return _Rebuilt(built.exchanges, wrong, built_s - began_s, time.thread_time() - built_s)


def _cpu_seconds(took: dict[str, float], work: Callable[[], object]) -> float:
    """Do the work, add how long it took to `wall_s`, and return the CPU time of all threads."""
    began, began_wall = time.process_time(), time.perf_counter()
    work()
    took["wall_s"] += time.perf_counter() - began_wall
    return time.process_time() - began


def _template() -> tuple[Tables, TraceInfo]:
    """The tables of the bundled capture."""
    with tempfile.TemporaryDirectory(prefix="twintap-bench-") as folder:
        url = str(Path(folder) / "trace")
        info = analyse(host_sources([str(CAPTURE)]), url)
        names = ("hops", "messages", "connections", "exchanges", "clocks")
        return {name: Trace(url).read(name) for name in names}, info


def _parts(one: Tables, copies: int, each: int, with_ids: bool) -> Iterator[Part]:
    """Hops, heads and connections of `each` copies at a time."""
    times = one["hops"]["send_trace_ns"]
    step = (pc.max(times).as_py() - pc.min(times).as_py()) // AT_ONCE
    messages = one["messages"] if with_ids else one["messages"].slice(0, 0)
    for start in range(0, copies, each):
        numbers = range(start, min(copies, start + each))
        yield (
            _repeat(one["hops"], numbers, step),
            _repeat(messages, numbers, step),
            _repeat(one["connections"], numbers, step),
        )


def _repeat(table: pa.Table, numbers: range, step: int) -> pa.Table:
    """Copies of a table of the template, each later and with ids of its own."""
    many = pa.concat_tables([table] * len(numbers)).combine_chunks().unify_dictionaries()
    number = np.repeat(np.array(numbers), table.num_rows)
    for place, name in enumerate(many.column_names):
        column = many[name]
        if name == "connection_id":
            column = pc.add(column, pa.array(number * STRIDE))
        elif name.endswith("trace_ns"):
            column = pc.add(column, pa.array(number * step))
        elif name == "transaction_id":
            own = pc.binary_join_element_wise(column, pa.array(number).cast(pa.string()), "-")
            column = pc.if_else(pc.not_equal(column, ""), own, column)
        else:
            continue
        many = many.set_column(place, many.field(name).with_type(column.type), column)
    return many


if __name__ == "__main__":
    sys.exit(main())
