"""How right inferred links are on captures that come with a list of who made what.

`python -m benchmarks.linking.by_truth FOLDER…` is for systems that show no ids in what was captured (short snapshots,
multiplexed or secret protocols), but whose true exchanges are known from elsewhere. FOLDER holds the captures of all
hosts, as `tracer replay` takes them, and `truth_http.json` (or `.json.gz`): a list of exchanges with `conn`
(`CLIENT:PORT>SERVER:PORT`), `client`, `server` (host names), `tx` (what all exchanges of one client's request share),
and in ns `req_send_ns` (its first byte left), `req_recv_ns` (came), `rsp_send_ns` (its answer began to leave). Its
parent is the exchange of the same `tx` that its client served, as a server, when it left; where there are several the
parent is not known, and it is not scored. Exchanges of ours that the list does not have are counted beside, as
`others`: how many have a parent, and how surely, but not whether it is right.
"""

import gzip
import json
import tempfile
from pathlib import Path

import click
import polars as pl
import pyarrow as pa

from benchmarks.linking.measure import replay_tables
from benchmarks.linking.scoring import LinkScore, score_links
from benchmarks.linking.truth import ROOT, Truth, exchange_places

TRUTH_FILES = ("truth_http.json", "truth_http.json.gz")
APART_NS = 1_000_000
"""How far the truth's time of an exchange's first byte and ours may be apart."""
TIMES = ("req_send_ns", "req_recv_ns", "rsp_send_ns")
SURE_CONFIDENCE = 0.95
HEADS = ("capture", "links", "given a parent", "right", "mean confidence", "ECE", "sure", "sure and wrong", "others")


def read_truth(folder: Path) -> pl.DataFrame:
    """`line, peer, local, sent, at, out, client, server, tx` of every exchange that the truth file lists."""
    files = [folder / name for name in TRUTH_FILES if (folder / name).exists()]
    if not files:
        raise click.UsageError(f"{folder} has no {TRUTH_FILES[0]}: nothing says which exchange made which")
    file = files[0]
    text = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    rows = [
        (number, *row["conn"].split(">"), *(row[name] for name in TIMES), row["client"], row["server"], row["tx"])
        for number, row in enumerate(json.loads(text))
    ]
    schema = {"line": pl.Int64, "peer": pl.String, "local": pl.String}
    schema |= dict.fromkeys(("sent", "at", "out"), pl.Int64) | dict.fromkeys(("client", "server", "tx"), pl.String)
    return pl.DataFrame(rows, schema, orient="row")


def listed_truth(exchanges: pa.Table, connections: pa.Table, listed: pl.DataFrame) -> Truth:
    """What the list (`read_truth`) says of a trace's exchanges; those that show no head are in none of its lines."""
    shown = exchange_places(exchanges, connections).join(_with_heads(exchanges), on="exchange_id", how="semi")
    ends = ["peer", "local"]
    of_line = listed.sort("at").join_asof(
        shown.select("exchange_id", *ends, "at").sort("at"),
        on="at",
        by=ends,
        strategy="nearest",
        tolerance=APART_NS,
        check_sortedness=False,
    )
    served = listed.select("tx", client="server", parent="line", opened="at", closed="out")
    parents = (
        listed.join(served, on=["tx", "client"])
        .filter(pl.col("opened") <= pl.col("sent"), (pl.col("closed") >= pl.col("sent")).fill_null(value=True))
        .group_by("line")
        .agg(parent=pl.when(pl.len() == 1).then(pl.col("parent").first()))
    )
    roots = ~pl.col("line").is_in(parents["line"].implode())
    lines = listed.join(parents, on="line", how="left").select(
        "line", parent=pl.when(roots).then(pl.lit(ROOT, pl.Int64)).otherwise("parent")
    )
    found = of_line.drop_nulls("exchange_id").select("exchange_id", "line", is_first=pl.lit(True))
    return Truth(found.unique("exchange_id"), lines)


def _with_heads(exchanges: pa.Table) -> pl.DataFrame:
    heads = pl.DataFrame(exchanges.select(["exchange_id", "method"]))
    return heads.filter(pl.col("method").is_not_null()).select("exchange_id")


def row(name: str, links: pl.DataFrame, truth: Truth) -> tuple[str, ...]:
    """`HEADS` of a trace's links: `exchange_id, parent_id, confidence`."""
    asked = truth.exchanges.join(truth.lines.filter(pl.col("parent") != ROOT), on="line", how="semi")
    own = links.join(asked, on="exchange_id", how="semi")
    score = score_links(own, Truth(truth.exchanges, truth.lines.join(asked, on="line", how="semi")))
    others = links.join(truth.exchanges, on="exchange_id", how="anti")
    sure = own.filter(pl.col("confidence") >= SURE_CONFIDENCE)
    return (
        name,
        f"{score.scored_count:,}",
        f"{len(own) / max(1, score.scored_count):.2%}",
        f"{score.accuracy:.2%}",
        f"{own['confidence'].sum() / max(1, len(own)):.3f}",
        f"{score.calibration_error:.3f}",
        f"{len(sure):,}",
        f"{len(sure) - _right_count(sure, truth):,}",
        f"{len(others):,} at {others['confidence'].sum() / max(1, len(others)):.2f}",
    )


def _right_count(links: pl.DataFrame, truth: Truth) -> int:
    lines = truth.exchanges.join(links, on="exchange_id", how="semi").select("line")
    score: LinkScore = score_links(links, Truth(truth.exchanges, truth.lines.join(lines, on="line", how="semi")))
    return score.right_count


def score_folder(folder: Path) -> tuple[str, ...]:
    """The row of one folder."""
    listed = read_truth(folder)
    with tempfile.TemporaryDirectory(prefix="twintap-by-truth-") as name:
        tables = replay_tables(folder, Path(name) / "trace")
    truth = listed_truth(tables["exchanges"], tables["connections"], listed)
    links = pl.DataFrame(tables["spans"]).select("confidence", exchange_id="span_id", parent_id="parent_span_id")
    return row(folder.name, links.drop_nulls("parent_id"), truth)


@click.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False, path_type=Path))
def main(folders: tuple[Path, ...]) -> None:
    """Print the table, in Markdown."""
    click.echo("| " + " | ".join(HEADS) + " |\n|---|" + "--:|" * (len(HEADS) - 1))
    for folder in folders:
        click.echo("| " + " | ".join(score_folder(folder)) + " |")


if __name__ == "__main__":
    main()
