"""Prints why a request took so long, and how two groups of requests differ."""

from rich.console import Console
from rich.text import Text

from collector.annotations.agreement import heading_of
from collector.queries.why import MOST_PLACES, StageOfRequest, Why
from collector.reporting.comparison import Comparison
from collector.reporting.console import WIDTH, show_paragraph
from collector.reporting.text import show_comparison
from collector.trace.durations import in_words
from tracer.plain_text import plain

INDENT, MOST_SAID = 14, 12


def show_why(why: Why, console: Console) -> None:
    """Print why a request took so long."""
    console.width = console.width if console.is_terminal else WIDTH
    names = ", ".join(plain(each) for each in (f"#{why.number}", why.transaction_id) if each)
    sentence = f"{plain(why.title)} ({names}) took {in_words(why.duration_ns)}, {_difference(why.extra_ns)} against "
    others, usual = plain(why.against), in_words(why.usual_ns)
    if why.shorter_share is None:
        sentence += f"{others}, which took {usual}"
    else:
        sentence += f"{usual}, the mean of the middle half of {why.alike_count:,} {others}; {_rank(why.shorter_share)}"
    show_paragraph(console, sentence, "bold")
    console.print()
    for stage in why.large:
        _show_stage(console, stage)
    if why.small:
        rest = f"{_difference(sum(each.extra_ns for each in why.small)):>10}  {why.small_words}"
        console.print(Text(f"  {rest}", "dim"))
    if why.said:
        console.print()
        console.print(Text(heading_of(why.said), "bold"))
    for each in why.said[:MOST_SAID]:
        words = f": {each.words}" if each.words else ""
        show_paragraph(console, plain(f"{each.by}, {each.name}{words}"), "", 2)
    if len(why.said) > MOST_SAID:
        show_paragraph(console, f"… and {len(why.said) - MOST_SAID:,} more (--json shows all)", "dim", 2)
    if why.shorter_share is not None and why.typical is not None:
        console.print()
        show_paragraph(console, f"The nearest to the usual one is #{why.typical} (--against '#{why.typical}').", "dim")


def _show_stage(console: Console, stage: StageOfRequest) -> None:
    console.print(Text.assemble(f"  {_difference(stage.extra_ns):>10}  ", (plain(stage.stage), "bold")))
    usual = in_words(stage.usual_ns) if stage.usual_ns else "none"
    words = f"{in_words(stage.duration_ns) if stage.duration_ns else 'none'} against {usual}"
    if stage.shorter_share is not None and stage.extra_ns > 0:
        words += f"; {_rank(stage.shorter_share)}"
    show_paragraph(console, words, "", INDENT)
    if stage.extra_ns <= 0:
        return
    for place in stage.where[:MOST_PLACES]:
        part = "all" if place.duration_ns == stage.duration_ns else in_words(place.duration_ns)
        at = f"{part} of it on {plain(place.host)}: {plain(place.title)}"
        show_paragraph(console, at, "dim", INDENT)
    for cause in stage.causes:
        show_paragraph(console, plain(cause.text), "yellow", INDENT)


def _difference(extra_ns: int) -> str:
    return f"{'+' if extra_ns >= 0 else '−'}{in_words(abs(extra_ns))}"


def _rank(shorter_share: float) -> str:
    """`longer than 99.2 % of them`, `longer than all of them`."""
    return f"longer than {'all' if shorter_share == 1 else f'{100 * shorter_share:.1f} %'} of them"


def show_groups(found: Comparison, console: Console) -> None:
    """Print the differences of the second group of a comparison against the first."""
    console.width = console.width if console.is_terminal else WIDTH
    show_comparison(console, found)
    if found.left_out and not found.untested:
        show_paragraph(console, f"too few to compare: {', '.join(map(plain, found.left_out))}", "dim", 2)
