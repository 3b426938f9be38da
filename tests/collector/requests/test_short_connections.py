"""Pages that open a connection to a database, log in, make some statements, and close it. No id says which page made
them."""

import random

import polars as pl
import pytest

from collector.requests.spans import link
from testkit.tables import table

US = 1_000
BASE_NS = 1_700_000_000_000_000_000
PAGES = 250
STATEMENTS = (0, 1, 3, 5)


class Pages:
    """A host that serves pages, and what it calls: of each exchange its row, and the page that made it."""

    def __init__(self, seed: int, *, kept: bool = False) -> None:
        self.draws = random.Random(seed)
        self.kept = kept
        self.rows: list[dict[str, object]] = []
        self.parent: dict[int, int] = {}

    def run(self, at_once: int) -> None:
        """Clients that ask for pages, one after another, with pauses between."""
        for client in range(at_once):
            at_us = self.draws.randrange(5_000)
            for _ in range(PAGES // at_once):
                at_us = self.page(client, at_us) + self.about(3_000)

    def page(self, client: int, begin_us: int) -> int:
        """When it has been answered."""
        number = self.add("client", "web", client, begin_us, begin_us)
        at_us = begin_us + self.about(400)
        opened_us = at_us
        statements = self.draws.choice(STATEMENTS)
        for place in range(statements + 1 if statements else 0):
            sent_us = at_us + 150 if place == 0 else at_us
            at_us = sent_us + self.about(300)
            connection = 5_000 + client if self.kept else 10_000 + number
            began_us = None if self.kept or place else opened_us
            self.parent[self.add("web", "db", connection, sent_us, at_us, began_us)] = number
            at_us += self.about(200)
        end_us = at_us + self.about(600)
        self.rows[number] |= times(begin_us, end_us)
        return end_us

    def add(
        self, client: str, server: str, connection: int, begin_us: int, end_us: int, opened_us: int | None = None
    ) -> int:
        """An exchange; its number. `opened_us`: when a connection was opened for it."""
        number = len(self.rows)
        row = {
            "exchange_id": number,
            "connection_id": connection,
            "client_host": client,
            "server_host": server,
            "service": server,
            "request_bytes": 100,
            "response_bytes": 300,
            "connect_start_trace_ns": None if opened_us is None else BASE_NS + opened_us * US,
        }
        self.rows.append(row | times(begin_us, end_us))
        return number

    def about(self, mean_us: int) -> int:
        """A duration."""
        return mean_us // 2 + int(self.draws.expovariate(2 / mean_us))

    def links(self) -> pl.DataFrame:
        """`connection, parent, confidence, right` of each call."""
        spans = pl.DataFrame(link(table("exchanges", self.rows)))
        connection = {row["exchange_id"]: row["connection_id"] for row in self.rows}
        calls = spans.filter(pl.col("span_id").is_in(list(self.parent)))
        true_parent = pl.col("span_id").replace_strict(self.parent, return_dtype=pl.Int64)
        return calls.select(
            connection=pl.col("span_id").replace_strict(connection, return_dtype=pl.Int64),
            parent="parent_span_id",
            confidence=pl.col("confidence").fill_null(0.0),
            right=(pl.col("parent_span_id") == true_parent).fill_null(value=False),
        )


def times(begin_us: int, end_us: int) -> dict[str, int]:
    """Times of an exchange without a network."""
    begin, end = (
        [f"{message}_{part}_trace_ns" for part in ("first_sent", "first_received", "last_sent", "last_received")]
        for message in ("request", "response")
    )
    return dict.fromkeys(begin, BASE_NS + begin_us * US) | dict.fromkeys(end, BASE_NS + end_us * US)


@pytest.mark.parametrize("kept", [False, True])
def test_all_calls_of_the_only_page_at_a_time_are_its_own(*, kept: bool) -> None:
    """Two of five had no parent: those that were more than a page makes in the mean."""
    pages = Pages(3, kept=kept)
    pages.run(at_once=1)
    found = pages.links()
    assert found["right"].all()
    assert found["confidence"].min() >= 0.95


@pytest.mark.parametrize(("at_once", "least"), [(2, 0.95), (4, 0.9), (8, 0.8)])
def test_calls_of_one_connection_are_of_one_page(at_once: int, least: float) -> None:
    pages = Pages(5)
    pages.run(at_once)
    found = pages.links()
    parents = found.group_by("connection").agg(pl.col("parent").n_unique())
    assert parents.select((pl.col("parent") == 1).mean()).item() >= 0.99
    assert found["right"].mean() >= least
    assert abs(found["right"].mean() - found["confidence"].mean()) <= 0.06


def test_connections_that_a_daemon_opens_at_any_time_are_of_no_page() -> None:
    pages = Pages(7)
    pages.run(at_once=1)
    last_us = (max(int(str(row["response_last_sent_trace_ns"])) for row in pages.rows) - BASE_NS) // US
    daemon = []
    for at_us in range(500, last_us, 7_300):
        for sent_us in (at_us, at_us + 200, at_us + 400):
            began_us = at_us - 100 if sent_us == at_us else None
            daemon.append(pages.add("web", "peer", 900_000 + at_us, sent_us, sent_us + 100, began_us))
    spans = pl.DataFrame(link(table("exchanges", pages.rows))).filter(pl.col("span_id").is_in(daemon))
    assert len(daemon) > 200
    assert spans["parent_span_id"].null_count() >= 0.95 * len(spans)
    assert pages.links()["right"].all()
