"""Hops against an independent pairing, on captures of a real Swift that are kept outside the project.

Runs where the environment variable TWINTAP_REFERENCE_CAPTURES names their folder. Each has `<host>.pcap.gz`, maybe
`<host>_lo.pcap.gz` (the same host's loopback; its frames go on counting), and `pairs.csv.gz`: which packet of which
capture arrived as which, found from both captures of every path with one kernel clock. `skew/<variant>/` replaces one
host's capture by the same with a wrong clock, which must change nothing.
"""

import csv
import gzip
import os
from pathlib import Path

import polars as pl
import pytest

from collector.decode.captures import decode
from collector.decode.host_capture import HostSource
from collector.hops.matching import match

VARIABLE = "TWINTAP_REFERENCE_CAPTURES"
FOLDER = Path(os.environ.get(VARIABLE, ""))
ENDING = ".pcap.gz"

Pair = tuple[str, int, str, int]
Packet = tuple[str, int]


def variants() -> list[str]:
    """Every folder, and every `skew/<variant>` in it; relative."""
    if VARIABLE not in os.environ:
        return []
    plain = [path.parent for path in FOLDER.glob("*/pairs.csv.gz")]
    return [str(path.relative_to(FOLDER)) for folder in plain for path in (folder, *folder.glob("skew/*"))]


pytestmark = pytest.mark.skipif(VARIABLE not in os.environ, reason=f"{VARIABLE} names no folder of captures")


def sources(variant: Path) -> list[HostSource]:
    """The hosts of a folder, loopback captures behind the others; a variant's files stand for those of its folder."""
    folder = variant.parents[1] if variant.parent.name == "skew" else variant
    files = {path.name: path for path in sorted(folder.glob(f"*{ENDING}"))}
    replaced = {path.name: path for path in variant.glob(f"*{ENDING}")}
    assert replaced.keys() <= files.keys()
    by_name = sorted((files | replaced).items(), key=lambda item: item[0].endswith(f"_lo{ENDING}"))
    return [HostSource(name.removesuffix(ENDING).removesuffix("_lo"), (path,)) for name, path in by_name]


def expected_pairs(folder: Path) -> tuple[set[Pair], set[Packet], set[Packet]]:
    """(pairs of packets, packets of which some bytes were lost, packets whose other end was not captured)."""
    pairs, lost, lone = set(), set(), set()
    with gzip.open(folder / "pairs.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            ends = [(row[f"{end}_host"], int(row[f"{end}_frame"])) for end in ("src", "dst") if row[f"{end}_frame"]]
            if row["kind"] == "lost":
                lost.add(ends[0])
            elif row["kind"] in {"edge", "unsent"}:
                lone.add(ends[0])
            else:
                assert row["kind"] in {"exact", "split", "merge"}
                pairs.add((*ends[0], *ends[1]))
    return pairs, lost, lone


@pytest.mark.parametrize("variant", sorted(variants()))
def test_hops_are_the_independent_pairs(variant: str) -> None:
    given = FOLDER / variant
    hops = pl.DataFrame(match(decode(sources(given))).hops).with_columns(pl.col(pl.Categorical).cast(pl.String))
    between = hops.filter(pl.col("send_host") != pl.col("receive_host"))
    paired = between.filter(pl.col("state") == "matched")
    found = set(paired.select("send_host", "send_frame", "receive_host", "receive_frame").iter_rows())
    pairs, lost, lone = expected_pairs(given.parents[1] if given.parent.name == "skew" else given)
    assert len(pairs) > 100
    assert found - pairs == set(), "hops that are wrong"
    assert pairs - found == set(), "hops that are missing"
    others = between.filter(pl.col("state") != "matched")
    is_lone = [row in lone for row in others.select(_end_of("host"), _end_of("frame")).iter_rows()]
    assert set(others.filter(~pl.Series(is_lone, dtype=pl.Boolean))["state"]) <= {"lost"}
    sent_and_lost = others.filter(pl.col("state") == "lost", ~pl.Series(is_lone, dtype=pl.Boolean))
    assert set(sent_and_lost.select("send_host", "send_frame").iter_rows()) == lost


def _end_of(what: str) -> pl.Expr:
    """Of a hop with one end its host, or frame."""
    return pl.when(pl.col("send_frame").is_not_null()).then(f"send_{what}").otherwise(f"receive_{what}").alias(what)
