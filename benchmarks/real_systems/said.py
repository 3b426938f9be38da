"""The product's output for a run's captures: `tracer replay`, then `tracer report` as text and as JSON, and the tables.

The judge reads the tables' files with polars and the JSON as any user's script would, without `collector`'s code.
"""

import functools
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.real_systems.lab import ROOT, LabError

_TRACER = (sys.executable, "-P", "-m", "tracer")
_LONGEST_S = 300


@dataclass(frozen=True)
class Said:
    """A trace of one run."""

    trace: Path
    text: str  # the report that `tracer replay` prints

    @functools.cached_property
    def report(self) -> dict[str, Any]:
        """What `tracer report --json` prints."""
        return json.loads(_tracer("report", str(self.trace), "--json"))

    def table(self, name: str) -> pl.DataFrame:
        """A table of the trace, its dictionaries as text."""
        found = pl.read_parquet(self.trace / f"{name}.parquet")
        return found.with_columns(pl.col(pl.Categorical).cast(pl.String))

    @functools.cached_property
    def exchanges(self) -> pl.DataFrame:
        """One row for each exchange that is no stream, in order of time, with its span and its connection's ends
        (`server`: the "address:port" that its own host knows it by)."""
        ends = self.table("connections").select(
            "connection_id",
            server=pl.format(
                "{}:{}",
                pl.coalesce("translated_server_addr", "server_addr"),
                pl.coalesce("translated_server_port", "server_port"),
            ),
            asked=pl.format("{}:{}", "server_addr", "server_port"),
            client_port=pl.coalesce("translated_client_port", "client_port").cast(pl.Int64),
        )
        spans = self.table("spans").rename({"span_id": "exchange_id"})
        found = self.table("exchanges").filter(~pl.col("is_stream")).join(ends, on="connection_id", how="left")
        found = found.join(spans, on="exchange_id", how="left", suffix="_span")
        at = pl.coalesce("request_first_received_trace_ns", "request_first_sent_trace_ns")
        return found.with_columns(at_ns=at).sort("at_ns", "exchange_id")

    @functools.cached_property
    def streams(self) -> list[dict[str, Any]]:
        """One row for each stream, with its server's "address:port"."""
        ends = self.table("connections").select(
            "connection_id", server=pl.format("{}:{}", "server_addr", "server_port")
        )
        return self.table("streams").join(ends, on="connection_id", how="left").to_dicts()

    @functools.cached_property
    def findings(self) -> list[dict[str, Any]]:
        """In the table's order, which is that of weight."""
        return self.table("findings").to_dicts()


def say(captures: list[str], folder: Path) -> Said:
    """Have the product make a trace in `folder` of these captures, and report it. Raises: LabError if it fails."""
    trace = folder / "trace"
    text = _tracer("replay", *captures, "-o", str(trace))  # it ends with what `tracer report` prints
    (folder / "report.txt").write_text(text, "utf-8")
    return Said(trace, text)


def _tracer(*words: str) -> str:
    done = subprocess.run([*_TRACER, *words], capture_output=True, text=True, check=False, cwd=ROOT, timeout=_LONGEST_S)
    if done.returncode:
        raise LabError(f"`tracer {words[0]}` ended with {done.returncode}: {done.stderr.strip()[-600:]}")
    return done.stdout
