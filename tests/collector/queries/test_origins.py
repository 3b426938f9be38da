"""Whose requests the requests of a trace are: clients', background work, or not known."""

import polars as pl
import pytest

from collector.queries import row_parts
from collector.queries.origins import Origin, request_origins
from collector.services.client_requests import of_clients
from tests.helpers.exchange_lines import exchanges_of


def origins_of(exchanges: pl.DataFrame) -> list[int]:
    """Of requests without calls."""
    spans = exchanges.with_columns(request=pl.int_range(pl.len(), dtype=pl.Int32))
    clients = of_clients(spans, spans)["request"]
    requests = spans.select(
        outermost=pl.col("request").is_in(clients.implode()), background=pl.col("background").fill_null(value=False)
    )
    return request_origins(requests, spans).tolist()


def test_what_no_request_made_is_background_only_on_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    exchanges = pl.DataFrame(
        exchanges_of(
            """
            client > proxy              0  10      90     100
            proxy > cache              20  22      30      32   // begins while proxy serves, like the two below it
            proxy > cache              40  42      50      52
            proxy > cache              60  62      70      72
            proxy > store          500000 500002 500030 500032   // begins while proxy is idle, again and again
            proxy > store          600000 600002 600030 600032
            proxy > store          700000 700002 700030 700032
            proxy > log            800000 800002 800030 800032   // once only
            proxy > queue          800040 800042 800050 800052 daemon
            """
        )
    )
    client, background, unlinked = Origin.CLIENT, Origin.BACKGROUND, Origin.UNLINKED
    expected = [client, *[unlinked] * 3, *[background] * 3, unlinked, background]
    assert origins_of(exchanges) == expected
    monkeypatch.setattr(row_parts, "ROW_GROUP_ROWS", 2)
    assert origins_of(exchanges) == expected


def test_calls_of_a_host_whose_own_requests_have_no_times_begin_while_it_is_idle() -> None:
    exchanges = pl.DataFrame(
        exchanges_of(
            """
            client > proxy   0  10  90  100
            proxy > store   20  22  30  32
            proxy > store  120 122 130 132
            proxy > store  220 222 230 232
            """
        )
    )
    unseen = pl.when(pl.col("server_host") != "proxy").then(pl.col("^.*_trace_ns$")).name.keep()
    assert origins_of(exchanges.with_columns(unseen)) == [Origin.CLIENT, *[Origin.BACKGROUND] * 3]
