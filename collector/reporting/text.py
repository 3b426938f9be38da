"""Prints a report as text: at most 50 lines on a screen of 100 columns, coloured on a terminal, plain in a pipe.

Sentences wrap to the terminal's width; only names in tables are shortened, never a remedy.
"""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from collector.annotations.records import Kind
from collector.annotations.spans.disagreement import DisagreementLine
from collector.annotations.summary import AnnotationLine
from collector.findings.finding import times
from collector.findings.thresholds import changes_words
from collector.hops.quality import HostPair
from collector.hops.quality_summary import NAMES, Pairing, connection_name, pair_name, trouble_words
from collector.hops.tls_words import TlsLine, line_words
from collector.reporting.comparison import FEWEST_REQUESTS, Comparison, KindComparison, StageDifference
from collector.reporting.console import (
    COLOURS,
    WIDTH,
    new_console,
    new_grid,
    show_grid,
    show_heading,
    show_paragraph,
    show_remaining,
)
from collector.reporting.name_words import names_words
from collector.reporting.report import SLOWEST_SHARE, FindingLine, HostLine, LoadLine, Report, RequestSummary
from collector.reporting.scope_words import scope_words
from collector.reporting.served_by import ServedBy, served_words
from collector.reporting.story import Part, Story
from collector.reporting.stream_summary import StreamSummary, group_words, streams_words
from collector.requests.link_doubt import describe_links
from collector.requests.outcomes import Outcome
from collector.requests.results import ERRORS, answer_text
from collector.trace.durations import in_words, share, with_uncertainty
from collector.trace.model import CounterInfo

SLOWEST_WORDS = f"mean of the slowest {100 * SLOWEST_SHARE:.0f} %"
LINES = 50
MOST_PARTS, FEWEST_PARTS, MOST_STAGES, MOST_FINDINGS, MOST_TROUBLES, FEWEST_HOSTS = 14, 5, 7, 3, 3, 3
PAIRING_FRAME, STAGES_FRAME = 3, 5
"""Lines of these sections in addition to their entries."""
MOST_DIFFERENCES = 3
"""In a comparison, at most so many stages of each kind of request are shown. For this and the limits above: the entries
left out are counted. Hosts take the lines that the rest leaves."""
HOSTS_FRAME, NAMES_LINES = 4, 2
"""Lines of the section of hosts in addition to the hosts, and of what names them."""
MOST_NOTES, MOST_WORST, MOST_PAIRS = 2, 3, 5
"""Lines of each kind in the section about matching: clock steps and translations, connections, pairs of hosts."""
PAIRS_FRAME = 2
"""Lines of the table of pairs in addition to the pairs."""
MOST_STREAMS = 4
"""At most so many kinds of streams are named."""
MOST_HANDSHAKES = 4
"""At most so many kinds of TLS handshakes are listed."""
MOST_SERVED = 6
"""At most so many servers with their processes are listed."""
MOST_PROGRAMS = 3
"""At most so many daemons are named."""
BAR_CELLS = 10
MOST_NAME_CELLS = 36


def show(report: Report, console: Console | None = None) -> None:
    """Print the report to `console`, by default standard output."""
    console = console or new_console()
    console.width = console.width if console.is_terminal else WIDTH
    with console.capture() as above:
        show_paragraph(console, report.story.sentence, "bold")
        for note in scope_words(report):
            show_paragraph(console, note, "dim", 2)
        _show_troubles(console, report.troubles)
        _show_parts(console, report.story, FEWEST_PARTS if report.stages else MOST_PARTS)
    with console.capture() as below:
        _show_findings(console, report.findings, changes_words(report.info.thresholds))
    with console.capture() as requests:
        _show_requests(console, report.requests, describe_links(report.links))
    with console.capture() as streams:
        _show_streams(console, report.streams)
        _show_served_by(console, report.servers)
        _show_logs(console, [line for line in report.annotations if line.kind == Kind.LOG])
        _show_spans(console, [line for line in report.annotations if line.kind == Kind.SPAN], report.disagreements)
        _show_load(console, report.load)
        _show_tls(console, report.tls)
    free = LINES - sum(text.get().count("\n") for text in (above, requests, streams, below))
    with console.capture() as stages:
        worst = MOST_WORST + 1 if report.pairing.worst_connections else 0
        _show_stages(console, report, free - HOSTS_FRAME - FEWEST_HOSTS - PAIRING_FRAME - worst - STAGES_FRAME)
    free -= stages.get().count("\n")
    with console.capture() as pairing:
        _show_pairing(console, report.pairing, free - HOSTS_FRAME - FEWEST_HOSTS)
    free -= pairing.get().count("\n")
    with console.capture() as hosts:
        _show_hosts(console, report, max(FEWEST_HOSTS, free - HOSTS_FRAME))
    for text in (above, hosts, pairing, requests, streams, stages, below):
        console.file.write(text.get())
    if report.against is not None:
        show_comparison(console, report.against)


def show_comparison(console: Console, found: Comparison) -> None:
    """Print the significant differences between two groups of requests, kind by kind."""
    show_heading(console, "Compared", f"{found.first} → {found.second}")
    if not found.kinds and not found.untested:
        console.print("  no kind of request is in both")
    for kind in found.untested:
        show_paragraph(console, _compared_means(kind), "bold", 2)
        for stage in kind.stages[:MOST_DIFFERENCES]:
            show_paragraph(console, untested_words(stage), "", 4)
        few = f"too few to say whether that is more than noise: {FEWEST_REQUESTS} of each are needed"
        show_paragraph(console, few, "dim", 4)
    for kind in found.kinds:
        show_paragraph(console, _compared_means(kind), "bold", 2)
        differ = [stage for stage in kind.stages if stage.is_significant][:MOST_DIFFERENCES]
        for stage in differ:
            show_paragraph(console, difference_words(stage), "", 4)
        if not differ:
            show_paragraph(console, "no stage differs by more than noise", "dim", 4)


def _compared_means(kind: KindComparison) -> str:
    """`PUT at swift-proxy: 20 → 21 requests, mean 3.0 ms → 12.1 ms`."""
    ours, theirs = kind.first, kind.second
    counts = f"{ours.requests_count:,} → {theirs.requests_count:,} requests"
    return f"{kind.kind}: {counts}, mean {in_words(ours.mean_ns)} → {in_words(theirs.mean_ns)}"


def untested_words(stage: StageDifference) -> str:
    """`work in swift-object: 3.0 ms → 12.1 ms (+9.1 ms)`."""
    return f"{stage.stage}: {in_words(stage.first_ns)} → {in_words(stage.second_ns)} ({stage.in_words})"


def difference_words(stage: StageDifference) -> str:
    """`work in swift-object: 3.0 ms → 12.1 ms (+9.1 ms ± 1.2 ms, p < 0.001)`."""
    chance = "p < 0.001" if stage.p_value < 0.001 else f"p = {stage.p_value:.3f}"
    return f"{stage.stage}: {in_words(stage.first_ns)} → {in_words(stage.second_ns)} ({stage.in_words}, {chance})"


def _show_stages(console: Console, report: Report, room: int) -> None:
    """Print the stages of all and of the slowest requests, and what makes slow ones slow, in at most `room` lines."""
    if not report.stages or room < 1:
        return
    mean_ns, slowest_ns = (
        sum(getattr(line, name) for line in report.stages) for name in ("mean_ns", "slowest_mean_ns")
    )
    show_heading(console, "Where requests spend their time")
    grid = new_grid("<", ">", ">", ">", ">")
    grid.add_row(*(Text(word, "dim") for word in ("", "on average", "", SLOWEST_WORDS, "")))
    for line in report.stages[: min(room, MOST_STAGES)]:
        shares = share(line.mean_ns, mean_ns), share(line.slowest_mean_ns, slowest_ns)
        grid.add_row(line.stage, in_words(line.mean_ns), shares[0], in_words(line.slowest_mean_ns), shares[1])
    show_grid(console, grid)
    slow = [stage for stage in report.slow.significant if stage.difference_ns > 0]
    if slow:
        show_paragraph(console, f"slow {slow[0].kind}, typical → slowest 5 %: {difference_words(slow[0])}", "", 2)


def _show_troubles(console: Console, troubles: Sequence[CounterInfo]) -> None:
    for counter in troubles[:MOST_TROUBLES]:
        show_paragraph(console, _trouble(counter), COLOURS[counter.severity])
    show_remaining(console, len(troubles), MOST_TROUBLES, " such counts")


def _trouble(counter: CounterInfo) -> str:
    where = f"{counter.host}: " if counter.host else ""
    return f"! {where}{counter.name.replace('_', ' ')}: {counter.count:,}; {counter.remedy}"


def _shown_count(count: int, most: int) -> int:
    """How many of `count` entries are shown in `most` lines: a single remaining one replaces the line that counts
    it."""
    return count if count == most + 1 else most


def _show_parts(console: Console, story: Story, most: int) -> None:
    if not story.parts:
        return
    show_heading(console, "Where the time went", f"{in_words(story.duration_ns)} in all")
    grid, most = new_grid("<", ">", ">", "<"), _shown_count(len(story.parts), most)
    largest = max(part.duration_ns for part in story.parts)
    largest_parts = sorted(story.parts, key=lambda part: -part.duration_ns)[:most]
    for part in (part for part in story.parts if part in largest_parts):
        bar = "█" * round(BAR_CELLS * part.duration_ns / largest) or "▏"
        of_all = share(part.duration_ns, story.duration_ns)
        grid.add_row(part.label, with_uncertainty(part.duration_ns, _likely(part)), of_all, bar)
    labels = grid.columns[0]
    labels.no_wrap, labels.overflow = False, "fold"  # a long one takes two lines; no figure and no bar is cut
    show_grid(console, grid)
    if any(_likely(part) < part.uncertainty_ns for part in largest_parts):
        bound = in_words(max(part.uncertainty_ns for part in largest_parts))
        console.print(Text(f"  ± as likely at 95 %; no part is off by more than {bound}", "dim"))
    show_remaining(console, len(story.parts), most)


def _likely(part: Part) -> int:
    """The error that stands with a part; the bound of all, which would widen every row, stands below them."""
    return min(part.uncertainty_ns, part.likely_error_ns or part.uncertainty_ns)


def _show_hosts(console: Console, report: Report, most: int) -> None:
    show_heading(console, "Hosts", _hops_words(report))
    grid = new_grid("<", ">", "<", "<")
    grid.add_row(*(Text(word, "dim") for word in ("", "packets", "captured", "clock against the reference")))
    names = names_words(report.info)
    most = _shown_count(len(report.hosts), max(FEWEST_HOSTS, most - NAMES_LINES * bool(names)))
    for line in report.hosts[:most]:
        grid.add_row(line.host, f"{line.packets_count:,}", _window(line), line.clock)
    show_grid(console, grid, names=0)
    show_remaining(console, len(report.hosts), most)
    if names:
        show_paragraph(console, names, "dim", 2)


def _window(line: HostLine) -> str:
    if line.captured_ns is None or line.started_after_ns is None:
        return "nothing"
    return f"{in_words(line.captured_ns)}, from +{in_words(line.started_after_ns)}"


def _hops_words(report: Report) -> str:
    total = sum(report.hop_states.values())
    states = ", ".join(f"{count:,} {state.replace('_', ' ')}" for state, count in report.hop_states.items())
    if not total:
        return "no hops"
    return f"{times(total, 'hop')} on {times(report.connections_count, 'connection')} ({states})"


def _show_pairing(console: Console, pairing: Pairing, room: int) -> None:
    """Print the section about matching: its heading, then in `room` lines notes, worst connections, pairs of hosts."""
    if not pairing.total.hops_count:
        return
    show_heading(console, "Pairing", f"{pairing.words}; {pairing.hops_words}")
    room -= 2
    notes = _notes([drops.words for drops in pairing.capture_drops], "captures")
    notes += _notes([step.words for step in pairing.clock_steps], "steps")
    notes += _notes([translation.words for translation in pairing.translations], "translations")
    for note in notes[: max(0, room)]:
        show_paragraph(console, note, "", 2)
    room -= len(notes)
    worst = pairing.worst_connections[: max(0, min(MOST_WORST, room - 1))]
    if worst:
        grid = new_grid("<", "<")
        for each in worst:
            grid.add_row(trouble_words(each.counts), connection_name(each))
        show_grid(console, grid, names=1)
        show_remaining(console, pairing.imperfect_connections_count, len(worst), ", none worse")
        room -= len(worst) + (pairing.imperfect_connections_count > len(worst))
    pairs = pairing.host_pairs[: max(0, min(MOST_PAIRS, room - PAIRS_FRAME))]
    if pairs:
        show_grid(console, _pairs_grid(pairs), names=0)
        show_remaining(console, len(pairing.host_pairs), len(pairs), ", none worse")


def _notes(words: Sequence[str], what: str) -> list[str]:
    """The first notes; the last one shown counts the rest."""
    shown = list(words[:MOST_NOTES])
    if len(words) > MOST_NOTES:
        shown[-1] += f", and {len(words) - MOST_NOTES:,} more {what}"
    return shown


def _pairs_grid(pairs: Sequence[HostPair]) -> Table:
    """A table of the pairs of hosts, without the kinds of trouble that none of them has."""
    columns = [name for name in NAMES if any(getattr(pair.counts, name) for pair in pairs)]
    grid = new_grid("<", ">", ">", *(">" for _ in columns))
    rows = [["", "hops", "matched", *(NAMES[name] for name in columns)]]
    for pair in pairs:
        figures = (f"{count:,}" if (count := getattr(pair.counts, name)) else "" for name in columns)
        rows.append([pair_name(pair), f"{pair.counts.hops_count:,}", pair.counts.matched_share, *figures])
    for number, row in enumerate(rows):
        grid.add_row(*(Text(word, "dim" if number == 0 else "") for word in row))
    return grid


def _show_requests(console: Console, requests: RequestSummary, links: str) -> None:
    if not requests.count:
        return
    figures = f"{requests.count:,}"
    if requests.count > 1 and requests.mean_ns is not None:
        assert requests.median_ns is not None
        assert requests.p99_ns is not None
        figures += f": mean {in_words(requests.mean_ns)}, median {in_words(requests.median_ns)}"
        figures += f", p99 {in_words(requests.p99_ns)}"
    figures += outcome_words(requests)
    show_heading(console, "Requests", figures)
    if requests.abandoned_count:
        show_paragraph(console, abandoned_words(requests), "", 2)
    show_paragraph(console, _exchanges_words(requests), "dim", 2)
    show_paragraph(console, links, "dim", 2)
    grid = new_grid(">", "<", ">", "<")
    # No other column may be cut: a transaction id is there to be copied.
    grid.columns[1].max_width = MOST_NAME_CELLS
    for line in requests.slowest:
        spans = f"{line.spans_count:,} span{'s' * (line.spans_count != 1)}"
        status = f"{answer_text(line.status, line.result)}, " if line.status_class in ERRORS else ""
        status = "given up, " if line.outcome == Outcome.ABANDONED else status
        status = "no whole answer, " if not status and line.outcome == Outcome.FAILED else status
        grid.add_row(in_words(line.duration_ns), line.name, status + spans, line.transaction_id or "")
    show_grid(console, grid)
    show_remaining(console, requests.count, len(requests.slowest), ", all faster")


def _show_streams(console: Console, streams: StreamSummary) -> None:
    if not streams.count:
        return
    show_heading(console, "Streams", streams_words(streams))
    most = _shown_count(len(streams.groups), MOST_STREAMS)
    for group in streams.groups[:most]:
        name, much, quick = group_words(group)
        show_paragraph(console, f"{name}: {much}{'; ' * bool(quick)}{quick}", "", 2)
    show_remaining(console, len(streams.groups), most)


def _show_tls(console: Console, lines: Sequence[TlsLine]) -> None:
    if not lines:
        return
    show_heading(console, "TLS", f"{sum(line.count for line in lines):,} handshakes")
    most = _shown_count(len(lines), MOST_HANDSHAKES)
    for line in lines[:most]:
        server, what, counts = line_words(line)
        show_paragraph(console, f"{server}: {what}; {counts}", "", 2)
    show_remaining(console, len(lines), most)


def _show_served_by(console: Console, lines: Sequence[ServedBy]) -> None:
    if not lines:
        return
    show_heading(console, "Served by")
    most = _shown_count(len(lines), MOST_SERVED)
    for line in lines[:most]:
        server, process, counts = served_words(line)
        show_paragraph(console, f"{server}: {process}; {counts}", "", 2)
    show_remaining(console, len(lines), most, " (--json shows all)")


def _show_logs(console: Console, lines: Sequence[AnnotationLine]) -> None:
    if lines:
        show_heading(console, "Logs", f"{sum(line.count for line in lines):,} lines")
        _show_annotations(console, lines)


def _show_spans(console: Console, lines: Sequence[AnnotationLine], disagreements: Sequence[DisagreementLine]) -> None:
    """Spans of other tracers, and where they and packets disagree."""
    if not lines:
        return
    joined, count = sum(line.joined_count for line in lines), sum(line.count for line in lines)
    show_heading(console, "Spans of other tracers", f"{joined:,} of {count:,} joined to a request")
    _show_annotations(console, lines)
    for line in disagreements:
        noun, what = line.words
        show_paragraph(console, f"disagree with packets, {noun}; the most: {what}", "", 2)


def _show_load(console: Console, lines: Sequence[LoadLine]) -> None:
    """Runs of load generators that were given with the trace."""
    for line in lines:
        show_heading(console, "Load", line.name)
        for words in line.sentences:
            show_paragraph(console, words, "", 2)


def _show_annotations(console: Console, lines: Sequence[AnnotationLine]) -> None:
    most = _shown_count(len(lines), MOST_SERVED)
    for line in lines[:most]:
        who, what = line.words
        show_paragraph(console, f"{who}: {what}", "", 2)
    show_remaining(console, len(lines), most, " (--json shows all)")


def outcome_words(requests: RequestSummary) -> str:
    """`; 3 failed, 2 given up by clients, 12 of unknown outcome`; "" if all are known to have succeeded."""
    counts = (
        (requests.failed_count, "failed"),
        (requests.abandoned_count, "given up by clients"),
        (requests.unknown_count, "of unknown outcome"),
    )
    words = ", ".join(f"{count:,} {what}" for count, what in counts if count)
    return f"; {words}" if words else ""


def abandoned_words(requests: RequestSummary) -> str:
    """`20 were given up by their clients, after 300.2 ms in the middle; they are in no mean, median or percentile`."""
    count = requests.abandoned_count
    was = "was given up by its client" if count == 1 else "were given up by their clients"
    after = "" if requests.abandoned_median_ns is None else f", after {in_words(requests.abandoned_median_ns)}"
    after += " at the median" if after and count > 1 else ""
    return f"{count:,} {was}{after}; no mean, median or percentile has {'it' if count == 1 else 'them'}"


def _exchanges_words(requests: RequestSummary) -> str:
    """`in 14,022 exchanges: 600 incomplete; 1,530 background (object-replicator 900, …); 3 writes to handoffs`."""
    programs = [f"{name} {count:,}" for name, count in requests.background_programs[:MOST_PROGRAMS]]
    programs += ["…"] if len(requests.background_programs) > MOST_PROGRAMS else []
    counts = (
        (requests.incomplete_count, "incomplete"),
        (requests.background_count, f"background ({', '.join(programs)})" if programs else "background"),
        (requests.unlinked_count, "whose request is not known"),
        (requests.unread_count, "of protocols that are not read, where what is sent before an answer counts as one"),
        (requests.handoffs_count, "writes to handoffs" if requests.handoffs_count > 1 else "write to a handoff"),
    )
    details = "; ".join(f"{count:,} {what}" for count, what in counts if count)
    return f"in {requests.exchanges_count:,} exchanges{': ' * bool(details)}{details}"


def _show_findings(console: Console, findings: Sequence[FindingLine], judged: str) -> None:
    show_heading(console, "Findings", "" if findings else "none")
    show_paragraph(console, judged, "dim", 2)
    for finding in findings[:MOST_FINDINGS]:
        cost = f", {in_words(finding.cost_ns)}" if finding.cost_ns else ""
        show_paragraph(console, f"{finding.severity}{cost}: {finding.text}", COLOURS[finding.severity], 2)
        show_paragraph(console, f"→ {finding.remedy}", "dim", 4)
    show_remaining(console, len(findings), MOST_FINDINGS, " (--json shows all)")
