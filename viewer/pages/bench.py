"""Runs of the load generator: how throughput, failures, latency and use of the hosts change with concurrency."""

from collections.abc import Callable, Mapping, Sequence

from dash import html
from dash.development.base_component import Component

from collector.queries import (
    RUN_PERCENTILES,
    BenchRun,
    Operation,
    RunJoin,
    join_words,
    may_be_of,
    read_run,
    run_overlaps,
    slowest_operations,
)
from viewer.figures.bench import Link, latency_figure, operations_figure, throughput_figure, trouble_figure, use_figure
from viewer.pages.address import Address, request_link
from viewer.pages.context import PageData
from viewer.pages.parts import Row, chart, code, heading, nothing, table
from viewer.wording import bytes_in_words, duration, plural

MOST_LISTED = 50
MOST_DRAWN = 1_500
"""Attempts of one run as dots: the failed and the slowest ones."""
RUN_HEAD = (
    *("run", "at once", "operations", "per second", "bytes", "failed", "retries"),
    *(f"p{share:g}" for share in RUN_PERCENTILES),
    *("errors", "recorded here"),
)
Series = dict[str, list[BenchRun]]


def content(data: PageData, address: Address) -> list[Component]:
    """The page."""
    title = heading("Bench", "What the load generator measured. Click a dot or a run to see its slowest operations.")
    folders = data.runs()
    read = [read_run(folder) for folder in folders]
    runs = [run for run in read if run is not None]
    if not runs:
        return [title, *_none(len(folders))]
    series = by_series(runs)
    parts = [title]
    if len(runs) < len(folders):
        missing = len(folders) - len(runs)
        words = f"{plural(missing, 'run')} left out: going on, killed, or damaged."
        parts.append(html.P(words, className="hint"))
    chosen = _chosen_run(runs, address)
    detail = [] if chosen is None else [_run_card(data, chosen)]

    def link(run: BenchRun) -> str:
        return address.link(run=f"{run.series}/{run.name}")

    whole = [*_charts(series, link), _all_runs(data, series, link)]
    return [*parts, *detail, *whole] if address.text("run") else [*parts, *whole, *detail]


def by_series(runs: Sequence[BenchRun]) -> Series:
    """Runs of each series by concurrency, the longest series first."""
    found: Series = {}
    for run in sorted(runs, key=lambda each: (each.series, each.concurrency, each.started_ns)):
        found.setdefault(run.series, []).append(run)
    return dict(sorted(found.items(), key=lambda item: -len(item[1])))


def _none(folders_count: int) -> list[Component]:
    if folders_count:
        return [nothing("No run here has ended", "A run that is going on or was killed has no figures yet.")]
    return [
        nothing(
            "No run of the load generator belongs to this trace",
            html.Span(["Show one beside it: ", code("tracer view TRACE --bench FOLDER")]),
            html.Span(
                [
                    "Record one: ",
                    code("tracer record -o TRACE -- tracer bench run put --count 1000 --concurrency 64 -o RUN"),
                ]
            ),
            html.Span(["A whole sweep: ", code("tracer bench paper 000 --quick -o FOLDER"), ", then as above."]),
            html.Span(
                ["A run of MinIO's warp: ", code("tracer bench import warp-….csv.zst -o FOLDER"), ", then as above."]
            ),
        )
    ]


def _charts(series: Series, link: Link) -> list[Component]:
    cards = [
        chart("throughput", "Throughput", throughput_figure(series, link), _column(series, _throughput)),
        chart("trouble", "Failures and retries", trouble_figure(series, link), _column(series, _trouble)),
        chart("response", "Response time", latency_figure(series, link), _column(series, _percentiles)),
    ]
    for name, runs in series.items():
        if any(run.use for run in runs):
            card = chart(f"use-{name}", f"Use of the hosts: {name}", use_figure(runs, link), _use_table(runs))
            cards.append(card)
    return [html.Div(cards, className="grid")]


def _all_runs(data: PageData, series: Series, link: Link) -> Component:
    from_ns = data.trace.start_ns
    to_ns = from_ns + data.trace.duration_ns

    def is_here(run: BenchRun) -> bool:
        if run.records_attempts:
            return run_overlaps(run, from_ns, to_ns)
        if not may_be_of(run, from_ns, to_ns):
            return False
        join = data.trace.join_run(run.folder)
        return bool(join.requests or join.ambiguous)

    rows = [_run_row(run, link(run), is_here(run)) for runs in series.values() for run in runs]
    return html.Section([html.H2("Every run"), table(RUN_HEAD, rows)], className="card", id="runs")


def _run_row(run: BenchRun, href: str, is_here: bool) -> Row:
    failed = html.B(f"✗ {run.failures_count:,}", className="bad") if run.failures_count else "0"
    percentiles = [duration(each) for each in run.percentiles_ns] or ["none"] * len(RUN_PERCENTILES)
    return (
        html.A(run.name, href=href),
        f"{run.concurrency:,}",
        f"{run.operations_count:,}",
        f"{run.throughput_per_s:,.1f}",
        bytes_in_words(run.bytes),
        failed,
        _retries(run),
        *percentiles,
        ", ".join(f"{kind} {count:,}" for kind, count in run.errors),
        "✓ yes" if is_here else "no",
    )


def _chosen_run(runs: Sequence[BenchRun], address: Address) -> BenchRun | None:
    """The run that the address names; the only one, if there is just one."""
    named = address.text("run")
    found = next((run for run in runs if f"{run.series}/{run.name}" == named), None)
    return runs[0] if found is None and len(runs) == 1 else found


def _run_card(data: PageData, run: BenchRun) -> Component:
    operations = slowest_operations(run.folder, MOST_DRAWN)
    if not run.records_attempts:
        return _imported_card(data, run, operations)
    numbers = data.trace.load.numbers_of([each.transaction_id for each in operations])
    links = [None if number is None else request_link(number) for number in numbers]
    rows = [_operation_row(each, link) for each, link in zip(operations[:MOST_LISTED], links, strict=False)]
    found = sum(link is not None for link in links)
    note = f"{found:,} of them lead to their request in the trace" if found else "none of them is in this trace"
    words = f"{run.concurrency:,} at once, {run.throughput_per_s:,.1f}/s: {plural(len(operations), 'attempt')}, {note}"
    head = ("operation", "status", "response time", "attempt", "error", "transaction id")
    dots = operations_figure(operations, links, run.started_ns)
    listed = html.Section([html.H2("Failed and slowest"), table(head, rows)], className="card", id="run")
    return html.Div([chart("operations", run.name, dots, table(head, rows), words), listed])


def _imported_card(data: PageData, run: BenchRun, operations: Sequence[Operation]) -> Component:
    """A run of another generator, which records no ids of requests: they were sought by what the operations are."""
    join = data.trace.join_run(run.folder)
    numbers = [join.requests.get(each.number) for each in operations]
    links = [None if number is None else request_link(number) for number in numbers]
    answers = data.trace.load.answers([number for number in numbers[:MOST_LISTED] if number is not None])
    rows = [
        _imported_row(each, link, _place_in_trace(each, join, answers))
        for each, link in zip(operations[:MOST_LISTED], links, strict=False)
    ]
    words = f"{run.concurrency:,} at once, {run.throughput_per_s:,.1f}/s: {plural(len(operations), 'operation')}"
    head = ("operation", "its answer in the trace", "response time", "error")
    dots = operations_figure(operations, links, run.started_ns)
    listed = html.Section([html.H2("Failed and slowest"), table(head, rows)], className="card", id="run")
    said = html.Section(
        [
            html.H2("Its requests in this trace"),
            html.Ul([html.Li(each) for each in join_words(join)]),
            html.P(
                f"{run.source} records no answers, retries, ids of requests, connections or use of hosts.",
                className="hint",
            ),
        ],
        className="card",
        id="joined",
    )
    return html.Div([chart("operations", run.name, dots, table(head, rows), words), said, listed])


def _place_in_trace(each: Operation, join: RunJoin, answers: Mapping[int, str]) -> str:
    number = join.requests.get(each.number)
    if number is not None:
        return answers.get(number) or "no answer seen"
    return "one of several at once" if each.number in join.ambiguous else "not in this trace"


def _imported_row(each: Operation, link: str | None, answer: str) -> Row:
    words = f"{each.op} {each.file}"
    return (
        words if link is None else html.A(words, href=link),
        answer,
        _time_taken(each),
        html.B(f"✗ {each.error}", className="bad") if each.error else "",
    )


def _operation_row(each: Operation, link: str | None) -> Row:
    words = f"{each.op} {each.file}"
    return (
        words if link is None else html.A(words, href=link),
        str(each.status or "no answer"),
        _time_taken(each),
        str(each.attempt),
        html.B(f"✗ {_error(each)}", className="bad") if each.error else "",
        each.transaction_id,
    )


def _time_taken(each: Operation) -> str:
    """The response time; a failure has none, only a time after which it had failed."""
    if each.response_ns is None:
        return "never began"
    return f"failed after {duration(each.response_ns)}" if each.error else duration(each.response_ns)


def _error(each: Operation) -> str:
    """What went wrong with an attempt; an answer that is not as it should be goes by its status."""
    return f"{each.error} {each.status}" if each.error == "status" else each.error


def _column(series: Series, words: Callable[[BenchRun], str]) -> Component:
    """A table of one figure: concurrency by series."""
    counts = sorted({run.concurrency for runs in series.values() for run in runs})
    rows = []
    for count in counts:
        cells = [", ".join(words(run) for run in runs if run.concurrency == count) for runs in series.values()]
        rows.append((f"{count:,} at once", *cells))
    return table(("", *series), rows)


def _throughput(run: BenchRun) -> str:
    return f"{run.throughput_per_s:,.1f}/s"


def _trouble(run: BenchRun) -> str:
    return f"{run.failures_count:,} failed, retries {_retries(run)}"


def _retries(run: BenchRun) -> str:
    return "not recorded" if run.retries_count is None else f"{run.retries_count:,}"


def _percentiles(run: BenchRun) -> str:
    return " / ".join(duration(each) for each in run.percentiles_ns)


def _use_table(runs: Sequence[BenchRun]) -> Component:
    rows = [
        (
            f"{run.concurrency:,} at once, {use.host}",
            "" if use.cpu_percent is None else f"{use.cpu_percent:.1f} %",
            "" if use.disk_percent is None else f"{use.disk_percent:.1f} %",
            "" if use.sent_bytes_per_s is None else f"{bytes_in_words(round(use.sent_bytes_per_s))}/s",
            "" if use.received_bytes_per_s is None else f"{bytes_in_words(round(use.received_bytes_per_s))}/s",
        )
        for run in runs
        for use in run.use
    ]
    return table(("", "CPU", "busiest disk", "sent", "received"), rows)
