"""A report as text: at most 50 lines of 100 columns, with colour on a terminal and plain into a pipe."""

import re
import textwrap
from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from collector.durations import in_words, share, with_uncertainty
from collector.pairing import NAMES, Pairing, connection_name, pair_name, trouble_words
from collector.quality import HostPair
from collector.report import FindingLine, HostLine, Report, RequestSummary
from collector.store import CounterInfo
from collector.story import Story

WIDTH = 100
LINES = 50
MOST_PARTS, MOST_FINDINGS, MOST_TROUBLES, FEWEST_HOSTS = 14, 3, 3, 3
"""Of each, how many lines; what is left is counted. Hosts take what the rest leaves of the screen."""
HOSTS_FRAME = 4
"""Lines of the section of hosts besides the hosts."""
MOST_NOTES, MOST_WORST, MOST_PAIRS = 2, 3, 5
"""Of pairing, how many lines of each kind: of clock steps and of translations, of connections, of pairs of hosts."""
PAIRS_FRAME = 2
"""Lines of the table of pairs besides the pairs."""
BAR_CELLS = 10
MOST_NAME_CELLS = 36
ERROR_STATUS = 400
"""HTTP statuses from here on are failures (RFC 9110 §15), and shown."""
_UNITS = re.compile(r"(?<=\d) (?=(?:ns|µs|ms|s)\b|%)|(?<=±) | (?=±)")
"""Spaces at which a line may not break."""
COLOURS = {"error": "bold red", "warning": "yellow", "notice": "cyan", "info": "dim", "data_loss": "bold red"}


def show(report: Report, console: Console | None = None) -> None:
    """Print the report. Arguments: `console`, where to; standard output if not given."""
    console = console or Console(highlight=False)
    console.width = min(WIDTH, console.width) if console.is_terminal else WIDTH
    with console.capture() as above:
        _paragraph(console, report.story.sentence, "bold")
        _show_troubles(console, report.troubles)
        _show_parts(console, report.story)
    with console.capture() as below:
        _show_requests(console, report.requests)
        _show_findings(console, report.findings)
    free = LINES - above.get().count("\n") - below.get().count("\n")
    with console.capture() as pairing:
        _show_pairing(console, report.pairing, free - HOSTS_FRAME - FEWEST_HOSTS)
    free -= pairing.get().count("\n")
    with console.capture() as hosts:
        _show_hosts(console, report, max(FEWEST_HOSTS, free - HOSTS_FRAME))
    for text in (above, hosts, pairing, below):
        console.file.write(text.get())


def _show_troubles(console: Console, troubles: Sequence[CounterInfo]) -> None:
    for counter in troubles[:MOST_TROUBLES]:
        console.print(_trouble(counter), overflow="ellipsis", no_wrap=True)
    _more(console, len(troubles), MOST_TROUBLES, "such counters")


def _trouble(counter: CounterInfo) -> Text:
    where = f"{counter.host}: " if counter.host else ""
    words = f"! {where}{counter.name.replace('_', ' ')}: {counter.count:,}; {counter.remedy}"
    return Text(words, COLOURS[counter.severity])


def _paragraph(console: Console, words: str, style: str = "", indent: int = 0) -> None:
    """Wrapped at words; a number keeps its unit."""
    for line in textwrap.wrap(_UNITS.sub("\u00a0", words), console.width - indent):
        console.print(Text(" " * indent + line.replace("\u00a0", " "), style), overflow="ellipsis", no_wrap=True)


def _heading(console: Console, words: str, rest: str = "") -> None:
    console.print()
    console.print(Text.assemble((words, "bold"), f"  {rest}" if rest else ""), overflow="ellipsis", no_wrap=True)


def _more(console: Console, count: int, shown: int, what: str) -> None:
    if count > shown:
        console.print(Text(f"  … and {count - shown:,} more {what}", "dim"))


def _grid(*columns: str) -> Table:
    """A table without lines; a column named with `>` is set to the right."""
    grid = Table.grid(padding=(0, 2))
    for column in columns:
        grid.add_column(justify="right" if column == ">" else "left", overflow="ellipsis", no_wrap=True)
    return grid


def _print(console: Console, grid: Table, names: int | None = None) -> None:
    """Indented. Column `names` gets the room that the others leave, so that names are cut and figures are not."""
    if names is not None:
        others = [column for place, column in enumerate(grid.columns) if place != names]
        taken = sum(2 + max(cell_len(str(cell)) for cell in column.cells) for column in others)
        grid.columns[names].max_width = max(1, console.width - 2 - taken)
    console.print(Padding(grid, (0, 0, 0, 2), expand=False))


def _show_parts(console: Console, story: Story) -> None:
    if not story.parts:
        return
    _heading(console, "Where the time went", f"{in_words(story.duration_ns)} in all")
    grid = _grid("<", ">", ">", "<")
    largest = max(part.duration_ns for part in story.parts)
    for part in story.parts[:MOST_PARTS]:
        bar = "█" * round(BAR_CELLS * part.duration_ns / largest)
        took = with_uncertainty(part.duration_ns, part.uncertainty_ns)
        grid.add_row(part.label, took, share(part.duration_ns, story.duration_ns), bar or "▏")
    _print(console, grid)
    _more(console, len(story.parts), MOST_PARTS, "parts")


def _show_hosts(console: Console, report: Report, most: int) -> None:
    _heading(console, "Hosts", _hops_words(report))
    grid = _grid("<", ">", "<", "<")
    grid.add_row(*(Text(word, "dim") for word in ("", "packets", "captured", "clock against the reference")))
    for line in report.hosts[:most]:
        grid.add_row(line.host, f"{line.packets_count:,}", _window(line), line.clock)
    _print(console, grid, names=0)
    _more(console, len(report.hosts), most, "hosts")


def _window(line: HostLine) -> str:
    if line.captured_ns is None or line.started_after_ns is None:
        return "nothing"
    return f"{in_words(line.captured_ns)}, from +{in_words(line.started_after_ns)}"


def _hops_words(report: Report) -> str:
    total = sum(report.hop_states.values())
    states = ", ".join(f"{count:,} {state.replace('_', ' ')}" for state, count in report.hop_states.items())
    return f"{total:,} hops on {report.connections_count:,} connections ({states})" if total else "no hops"


def _show_pairing(console: Console, pairing: Pairing, room: int) -> None:
    """Its heading, then in `room` lines: what to know first, the worst connections, the pairs of hosts."""
    if not pairing.total.hops_count:
        return
    _heading(console, "Pairing", f"{pairing.words}; {pairing.hops_words}")
    room -= 2
    notes = _notes([step.words for step in pairing.clock_steps], "steps")
    notes += _notes([translation.words for translation in pairing.translations], "translations")
    for note in notes[: max(0, room)]:
        console.print(Text(f"  {note}"), overflow="ellipsis", no_wrap=True)
    room -= len(notes)
    worst = pairing.worst_connections[: max(0, min(MOST_WORST, room - 1))]
    if worst:
        grid = _grid("<", "<")
        for each in worst:
            grid.add_row(trouble_words(each.counts), connection_name(each))
        _print(console, grid, names=1)
        _more(console, pairing.imperfect_connections_count, len(worst), "connections, none worse")
        room -= len(worst) + (pairing.imperfect_connections_count > len(worst))
    pairs = pairing.host_pairs[: max(0, min(MOST_PAIRS, room - PAIRS_FRAME))]
    if pairs:
        _print(console, _pairs_grid(pairs), names=0)
        _more(console, len(pairing.host_pairs), len(pairs), "pairs of hosts, none worse")


def _notes(words: Sequence[str], what: str) -> list[str]:
    """The first few; the last of them counts the rest."""
    shown = list(words[:MOST_NOTES])
    if len(words) > MOST_NOTES:
        shown[-1] += f", and {len(words) - MOST_NOTES:,} more {what}"
    return shown


def _pairs_grid(pairs: Sequence[HostPair]) -> Table:
    """The pairs of hosts; a kind of trouble that none of them has is left out."""
    columns = [name for name in NAMES if any(getattr(pair.counts, name) for pair in pairs)]
    grid = _grid("<", ">", ">", *(">" for _ in columns))
    rows = [["", "hops", "matched", *(NAMES[name] for name in columns)]]
    for pair in pairs:
        figures = (f"{count:,}" if (count := getattr(pair.counts, name)) else "" for name in columns)
        rows.append([pair_name(pair), f"{pair.counts.hops_count:,}", pair.counts.matched_share, *figures])
    for number, row in enumerate(rows):
        grid.add_row(*(Text(word, "dim" if number == 0 else "") for word in row))
    return grid


def _show_requests(console: Console, requests: RequestSummary) -> None:
    if not requests.count:
        return
    assert requests.mean_ns is not None
    assert requests.median_ns is not None
    assert requests.p99_ns is not None
    figures = f"{requests.count:,} in {requests.exchanges_count:,} exchanges"
    if requests.incomplete_count:
        figures += f", {requests.incomplete_count:,} of these incomplete"
    if requests.background_count:
        figures += f", {requests.background_count:,} in the background"
    if requests.handoffs_count:
        figures += f", {requests.handoffs_count:,} to handoffs"
    if requests.count > 1:
        figures += f"; mean {in_words(requests.mean_ns)}, median {in_words(requests.median_ns)}"
        figures += f", p99 {in_words(requests.p99_ns)}"
    _heading(console, "Requests", figures)
    grid = _grid(">", "<", ">", "<")
    # So that no other column is cut: a transaction id is there to be copied.
    grid.columns[1].max_width = MOST_NAME_CELLS
    for line in requests.slowest:
        spans = f"{line.spans_count:,} span{'s' * (line.spans_count != 1)}"
        status = f"{line.status}, " if line.status is not None and line.status >= ERROR_STATUS else ""
        grid.add_row(in_words(line.duration_ns), line.name, status + spans, line.transaction_id or "")
    _print(console, grid)
    _more(console, requests.count, len(requests.slowest), "requests, all faster")


def _show_findings(console: Console, findings: Sequence[FindingLine]) -> None:
    if not findings:
        _heading(console, "Findings", "none")
        return
    _heading(console, "Findings")
    for finding in findings[:MOST_FINDINGS]:
        cost = f", {in_words(finding.cost_ns)}" if finding.cost_ns else ""
        _paragraph(console, f"{finding.severity}{cost}: {finding.text}", COLOURS[finding.severity], 2)
        _paragraph(console, f"→ {finding.remedy}", "dim", 4)
    _more(console, len(findings), MOST_FINDINGS, "findings (--json shows all)")
