"""How right inferred links are on captures that show transaction ids: `python -m benchmarks.linking.by_id CAPTURES…`.

For systems whose servers' logs we do not have, yours among them. The captures (a folder of a host's each, as `tracer
record` and `tracer capture` keep them; or a recording of `benchmarks.linking`) are replayed as they are, with all heads
but without ids, and without any payload. What the ids say in the first replay is the truth for the others. Exchanges
that show no id, and links that an id leaves open, are not scored.
"""

import tempfile
from pathlib import Path

import click
import polars as pl
import pyarrow as pa

from benchmarks.linking.measure import replay_tables
from benchmarks.linking.payload import hide_ids, strip_folder
from benchmarks.linking.scoring import score_links
from benchmarks.linking.truth import ROOT, Truth, exchange_places
from collector.trace.schema import LinkReason

HEADS = ("captures", "hidden", "asked", "links", "given a parent", "right", "mean confidence", "ECE")


def truth_by_id(seen: dict[str, pa.Table], bare: dict[str, pa.Table]) -> Truth:
    """What the ids of `seen` say of the exchanges of `bare`, the same packets without ids or payload; tables
    `exchanges`, `connections`, and `spans` of `seen`. A line is an exchange of `seen`; of what is cut differently, the
    last that had begun."""
    ends = ["peer", "local"]
    shown, hidden = (exchange_places(tables["exchanges"], tables["connections"]).sort("at") for tables in (seen, bare))
    of_line = hidden.join_asof(
        shown.select(*ends, "at", line="exchange_id"), on="at", by=ends, strategy="backward", check_sortedness=False
    ).drop_nulls("line")
    spans = pl.DataFrame(seen["spans"]).select(
        parent="parent_span_id",
        line="span_id",
        is_known=(pl.col("link_reason").cast(pl.String) == LinkReason.TRANSACTION_ID.value)
        & (pl.col("confidence") == 1),
    )
    shows_id = pl.DataFrame(seen["exchanges"].select(["exchange_id", "transaction_id"])).select(
        line="exchange_id", shows_id=pl.col("transaction_id").is_not_null()
    )
    roots = pl.col("shows_id") & pl.col("parent").is_null()
    lines = spans.join(shows_id, on="line").select(
        "line", parent=pl.when(roots).then(pl.lit(ROOT, pl.Int64)).when("is_known").then("parent")
    )
    return Truth(of_line.select("exchange_id", "line", is_first=pl.lit(True)), lines)


def rows(folder: Path) -> list[tuple[str, ...]]:
    """Rows of the table, `HEADS`: one for each service that servers ask, and one for all."""
    captures = folder / "captures" if (folder / "captures").is_dir() else folder
    if not list(captures.glob("*/*.pcapng")):
        raise click.UsageError(f"{folder} has no HOST/*.pcapng; give a folder that `tracer record` or `capture` wrote")
    with tempfile.TemporaryDirectory(prefix="twintap-by-id-") as name:
        seen = replay_tables(captures, Path(name) / "seen")
        silent = replay_tables(hide_ids(captures, Path(name) / "silent.captures"), Path(name) / "silent")
        bare = replay_tables(strip_folder(captures, Path(name) / "bare.captures"), Path(name) / "bare")
    return [*_rows(folder.name, "ids", seen, silent), *_rows(folder.name, "heads", seen, bare)]


def _rows(folder: str, hidden: str, seen: dict[str, pa.Table], bare: dict[str, pa.Table]) -> list[tuple[str, ...]]:
    assert not bare["exchanges"]["transaction_id"].is_valid().to_numpy().any(), "an id was left"
    truth = truth_by_id(seen, bare)
    links = pl.DataFrame(bare["spans"]).select("confidence", exchange_id="span_id", parent_id="parent_span_id")
    service = pl.DataFrame(bare["exchanges"].select(["exchange_id", "service"])).cast({"service": pl.String})
    children = truth.lines.filter(pl.col("parent") != ROOT)
    asked = truth.exchanges.join(children, on="line", how="semi").join(service, on="exchange_id")
    if asked.is_empty():
        raise click.UsageError(f"{folder} shows no transaction ids that lead from one request to another")
    parts = [("all", asked), *((str(name), part) for (name,), part in sorted(asked.group_by("service")))]
    return [(folder, hidden, name, *_cells(part, links.drop_nulls("parent_id"), truth)) for name, part in parts]


def _cells(asked: pl.DataFrame, links: pl.DataFrame, truth: Truth) -> tuple[str, ...]:
    """The numbers of some exchanges."""
    own = links.join(asked, on="exchange_id", how="semi")
    score = score_links(own, Truth(truth.exchanges, truth.lines.join(asked, on="line", how="semi")))
    shares = (len(own) / max(1, score.scored_count), score.accuracy)
    confidence = own["confidence"].sum() / max(1, len(own))
    return (
        f"{score.scored_count:,}",
        *(f"{share:.2%}" for share in shares),
        f"{confidence:.3f}",
        f"{score.calibration_error:.3f}",
    )


@click.command()
@click.argument("captures", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False, path_type=Path))
def main(captures: tuple[Path, ...]) -> None:
    """Print the table, in Markdown."""
    click.echo("| " + " | ".join(HEADS) + " |\n|---|---|---|" + "--:|" * (len(HEADS) - 3))
    for folder in captures:
        for row in rows(folder):
            click.echo("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
