"""Clients' requests that were slower while a daemon worked at their server; and what only looks like it."""

import random

import pytest

from collector.findings.diagnosis import find
from collector.requests.spans import link
from collector.trace.model import TraceInfo
from testkit.tables import table
from tests.helpers.exchange_lines import exchanges_of

INFO = TraceInfo(created_ns=0, tool_version="", hosts=())
KIND = "slower_beside_background"
PASS_US, PERIOD_US, EVERY_US = 400_000, 2_000_000, 20_000
"""A daemon works for so long, once in so long; a client asks once in so long."""


def findings_of(
    *, passes: int = 16, first: int = 0, slower: float = 1.0, later: float = 1.0, every_us: int = EVERY_US
) -> list[str]:
    """The findings about background in a trace of two storages, at one of which a daemon works.

    Arguments: how often it works, and from which time on; how many times as long clients' requests take then, at that
    host; and in the second half of the trace, at both.
    """
    chance, lines = random.Random(3), list[str]()
    for number in range(passes * PERIOD_US // every_us):
        begin = 10_000 + number * every_us
        is_beside = begin % PERIOD_US >= PERIOD_US - PASS_US
        usual = (2_000 + chance.expovariate(1 / 2_000)) * (later if begin > passes * PERIOD_US / 2 else 1.0)
        for at, host in enumerate(("storage1", "storage2")):
            took = usual * (slower if is_beside and host == "storage2" else 1.0)
            start = begin + 7_000 * at
            lines.append(f"client > {host}/object {start} {start + 50} {start + took:.0f} {start + took + 50:.0f}")
    for number in range(first, passes):
        for step in range(0, PASS_US, 50_000):
            start = (number + 1) * PERIOD_US - PASS_US + step
            lines.append(f"replicator > storage2/object {start} {start + 50} {start + 49_000} {start + 50_000} daemon")
    exchanges = exchanges_of("\n".join(lines))
    tables = {name: table(name, []) for name in ("hops", "connections", "clocks")}
    rows = find(tables | {"exchanges": exchanges, "spans": link(exchanges)}, INFO).to_pylist()
    return [f"{row['severity']} {row['host']}: {row['text']}" for row in rows if row["kind"] == KIND]


def test_requests_that_were_slower_beside_a_daemon_in_every_pass() -> None:
    (text,) = findings_of(slower=3.0)
    assert text.startswith(
        "notice storage2: while background work went on at storage2 (16 times, 6.400 s in all), GET of object "
    )
    assert text.endswith("was slower than just before and after in 16 of 16")
    assert "(320 requests); otherwise p50" in text


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param({}, id="a daemon that slows nothing"),
        pytest.param({"slower": 1.2}, id="less than anybody would look for"),
        pytest.param({"slower": 3.0, "passes": 4}, id="too few passes to be no chance"),
        pytest.param({"slower": 3.0, "every_us": 200_000}, id="too few requests in each"),
        pytest.param(
            {"later": 4.0, "passes": 32, "first": 16}, id="a trace that is slower from the daemon's first work on"
        ),
    ],
)
def test_what_chance_or_something_else_explains_is_not_said(trace: dict[str, float]) -> None:
    assert findings_of(**trace) == []  # type: ignore[arg-type]
