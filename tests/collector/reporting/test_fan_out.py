"""Which of several answers let a request go on, in words."""

import pytest

from collector.reporting.fan_out import quorum_words
from collector.reporting.request_rows import join_spans
from collector.requests.spans import link
from tests.helpers.exchange_lines import exchanges_of

PUT = "client > proxy/swift-proxy 0 10 {answered} {ended} tx=t\n"
CASES = {
    "the third did not matter": (
        600,
        "20 30 490 500 tx=t, 20 30 590 599 tx=t, 20 30 41590 41600 tx=t",
        "swift-proxy answered at the second of three; storage3 came 41.0 ms later and did not matter",
    ),
    "the third never answered": (
        600,
        "20 30 490 500 tx=t, 20 30 590 599 tx=t, 20 30 - - tx=t",
        "swift-proxy answered at the second of three; storage3 never did, and that did not matter",
    ),
    "it waited for the last": (
        1600,
        "20 30 490 500 tx=t, 20 30 490 510 tx=t, 20 30 1500 1510 tx=t",
        "",
    ),
    "all at once": (600, "20 30 490 500 tx=t, 20 30 490 510 tx=t, 20 30 490 520 tx=t", ""),
    "one after the other": (2600, "20 30 490 500 tx=t, 600 630 1490 1500 tx=t, 1600 1630 2490 2500 tx=t", ""),
    "given up before it went on": (2600, "20 30 490 500 tx=t, 20 30 - - tx=t up=2000", ""),
    "it never went on": (None, "20 30 490 500 tx=t, 20 30 - - tx=t up=2000", ""),
    "one only": (600, "20 30 490 500 tx=t", ""),
}


@pytest.mark.parametrize(("answered", "asked", "expected"), CASES.values(), ids=CASES.keys())
def test_words(answered: int | None, asked: str, expected: str) -> None:
    text = PUT.format(answered=answered or "-", ended="-" if answered is None else answered + 10)
    for number, times in enumerate(asked.split(", "), 1):
        text += f"proxy > storage{number}/swift-object {times}\n"
    exchanges = exchanges_of(text)
    rows = join_spans(link(exchanges), exchanges)
    assert quorum_words(rows) == expected


@pytest.mark.parametrize(
    ("servers", "targets"),
    [
        (["storage1", "storage2", "storage3"], ["/a", "/b", "/c"]),
        (["storage1", "storage1", "storage1"], ["/a", "/a", "/a"]),
        (["storage1", "storage2", "storage3"], ["-", "-", "-"]),
    ],
    ids=["for different things", "of one server", "hidden"],
)
def test_calls_that_are_no_replicas_have_no_quorum(servers: list[str], targets: list[str]) -> None:
    text = PUT.format(answered=600, ended=610)
    for server, target, times in zip(servers, targets, ("490 500", "590 599", "41590 41600"), strict=True):
        text += f"proxy > {server}/swift-object 20 30 {times} tx=t target={target}\n"
    exchanges = exchanges_of(text)
    assert quorum_words(join_spans(link(exchanges), exchanges)) == ""
