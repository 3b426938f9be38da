"""What a request waited for a connection that never came is not its server's own work."""

from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from msgspec.structs import replace

from collector.reporting import new_ledgers
from collector.reporting.request_rows import RequestRows
from collector.reporting.root_requests import read_roots
from collector.reporting.stage_times import StageLedger
from collector.reporting.story import Story, failed_connects_of, make_story, story_of_rows
from collector.requests.spans import link
from collector.trace.model import AddressName, CommandInfo, TraceInfo
from collector.trace.schema import SILENCES
from testkit.tables import table
from tests.collector.reporting.test_story import clocks
from tests.helpers.exchange_lines import at_us, exchanges_of
from tests.helpers.row_groups import rows_in_groups
from tests.helpers.service_ports import named_ports

SERVICES = named_ports({6200: "swift-object", 8080: "swift-proxy"})
INFO = TraceInfo(created_ns=0, tool_version="", hosts=(), services=SERVICES)
PUT = """
    client > proxy/swift-proxy          0     10 520000 520010 method=PUT target=/v1/a/c/o tx=t1
    proxy > storage1/swift-object     120    130   9000   9010 connect=100 connected=110 tx=t1
    proxy > storage3/swift-object  501000 501010 515000 515010 connect=500900 connected=500950 tx=t1
"""


def syn(at: int, client: str = "proxy", server: str = "storage2", port: int = 6200) -> dict[str, object]:
    ends = {"client_host": client, "server_host": server, "server_port": port, "client_port": 40000}
    return {"connection_id": 7, "client_isn": 1, "first_host_ns": at_us(str(at)), **ends}


def story_of(*connections: dict[str, object], text: str = PUT, names: tuple[AddressName, ...] = ()) -> Story:
    exchanges = exchanges_of(text)
    timescale = clocks(client=0, proxy=0, storage1=0, storage2=0, storage3=0)
    connection_table: pa.Table = table("connections", list(connections))
    story = make_story(replace(INFO, names=names), link(exchanges), exchanges, timescale, connection_table)
    assert sum(part.duration_ns for part in story.parts) == story.duration_ns
    return story


def parts(story: Story) -> dict[str, float]:
    return {part.label: part.duration_ns / 1000 for part in story.parts}


VAIN = "waiting for connections to storage2 that never came"


def test_the_wait_is_the_connections() -> None:
    """From the SYN until another server was asked."""
    took = parts(story_of(syn(105)))
    assert took[VAIN] == 500_900 - 105
    assert took["in swift-proxy"] < 7_000


def test_a_server_without_a_capture_is_called_by_its_addresss_name() -> None:
    unheard_of = syn(105) | {"server_host": None, "server_addr": "10.0.0.9"}
    assert "waiting for connections to 10.0.0.9 that never came" in parts(story_of(unheard_of))
    disk = AddressName("10.0.0.9", "disk9", "lab")
    assert "waiting for connections to disk9 that never came" in parts(story_of(unheard_of, names=(disk,)))
    same = AddressName("10.0.0.8", "disk9", "lab")
    assert "waiting for connections to 10.0.0.9 that never came" in parts(story_of(unheard_of, names=(disk, same)))


def test_without_it_the_wait_would_seem_to_be_work() -> None:
    took = parts(story_of())
    assert VAIN not in took
    assert took["in swift-proxy"] > 490_000


def test_a_connection_that_came_up_or_belongs_to_nobody_changes_nothing() -> None:
    answered = syn(105) | {"server_isn": 2}
    elsewhere = syn(105, client="storage9")
    too_early = syn(-90_000)
    after_the_last_try = syn(516_000)
    expected = parts(story_of())
    for connection in (answered, elsewhere, too_early, after_the_last_try):
        assert parts(story_of(connection)) == expected


def test_a_server_that_was_never_heard_of_is_known_by_its_port() -> None:
    """nginx fails over from app1, of which nothing was ever heard and so no name is known, to app2."""
    text = """
        client > web/nginx        0     10 320000 320010 method=GET target=/a
        web > app2/app2         300500 300510 319000 319010 connect=300400 connected=300450
    """
    exchanges = exchanges_of(text)
    connection_id = exchanges["connection_id"].to_pylist()
    ports = [syn(0, "client", "web", 80) | {"connection_id": connection_id[0], "server_isn": 2}]
    ports += [syn(0, "web", "app2", 8000) | {"connection_id": connection_id[1], "server_isn": 2}]
    vain = syn(100, "web", "app1", 8000) | {"connection_id": 77}
    connection_table: pa.Table = table("connections", [*ports, vain])
    story = make_story(INFO, link(exchanges), exchanges, clocks(client=0, web=0, app1=0, app2=0), connection_table)
    assert parts(story)["waiting for connections to app1 that never came"] == 300_300
    elsewhere: pa.Table = table("connections", [*ports, vain | {"server_port": 5432}])
    story = make_story(INFO, link(exchanges), exchanges, clocks(client=0, web=0, app1=0, app2=0), elsewhere)
    assert not any("never came" in part for part in parts(story))


def test_the_stages_have_it_apart_and_still_add_up() -> None:
    exchanges = exchanges_of(PUT)
    connection_table: pa.Table = table("connections", [syn(105)])
    timescale = clocks(client=0, proxy=0, storage1=0, storage2=0, storage3=0)
    rows = RequestRows.of_tables(link(exchanges), exchanges)
    more = failed_connects_of(rows, INFO, lambda names: [connection_table.select(names)], timescale)
    stages = StageLedger.of(rows, read_roots(rows), more, SILENCES.empty_table())
    took = dict(stages.stage_rows().select("stage", "duration_ns").rows())
    assert took == dict(stages.sums().rows())
    assert took["connections to storage2 that never came"] == (500_900 - 105) * 1000
    assert sum(took.values()) == rows.whole().filter(depth=0)["duration_ns"].sum()


@pytest.mark.parametrize("rows_count", [1, 2, 100])
@pytest.mark.parametrize("command", [False, True])
def test_the_story_is_the_same_where_rows_come_in_groups(command: bool, rows_count: int, tmp_path: Path) -> None:
    lines = f"client > mq/mqtt 1 2 3 4 stream=1\n{PUT} client > proxy/swift-proxy 520100 520110 520200 520210 tx=t2"
    exchanges = exchanges_of(lines)
    spans = link(exchanges.filter(pc.invert(exchanges["is_stream"])))
    connections: pa.Table = table("connections", [syn(105)])
    timescale = clocks(client=0, proxy=0, storage1=0, storage2=0, storage3=0)
    ran = CommandInfo(("swift", "upload"), "client", at_us("-50"), at_us("600000"), 0)  # type: ignore[arg-type]
    info = replace(INFO, command=ran if command else None)
    whole = make_story(info, spans, exchanges, timescale, connections)
    assert parts(whole)[VAIN] == 500_900 - 105
    rows = rows_in_groups(tmp_path, spans, exchanges, rows_count)
    more = failed_connects_of(rows, info, lambda names: [connections.select(names)], timescale)
    assert story_of_rows(info, rows, read_roots(rows), timescale, more) == whole


@pytest.mark.parametrize("roots_count", [1, 3, 100])
@pytest.mark.parametrize("rows_count", [1, 2, 100])
def test_of_a_long_trace_only_what_waited_for_a_connection_has_new_ledgers(
    rows_count: int, roots_count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The story and the stages are the same; the ledgers of all others are not made, or not used."""
    others = [-90, *range(520100, 520900, 100)]
    lines = [f"client > proxy/swift-proxy {at} {at + 9} {at + 90} {at + 99} tx=t{at}" for at in others]
    exchanges = exchanges_of("\n".join([lines[0], PUT, *lines[1:]]))
    spans = link(exchanges)
    timescale = clocks(client=0, proxy=0, storage1=0, storage2=0, storage3=0)
    connections: pa.Table = table("connections", [syn(105)])
    rows = rows_in_groups(tmp_path, spans, exchanges, rows_count)
    roots = read_roots(rows)
    more = failed_connects_of(rows, INFO, lambda names: [connections.select(names)], timescale)
    assert more is not None
    whole = StageLedger.of(rows, roots, more, SILENCES.empty_table())
    story = story_of_rows(INFO, rows, roots, timescale, more)
    monkeypatch.setattr(new_ledgers, "MOST_WHOLE_ROWS", len(exchanges) - 1)
    monkeypatch.setattr(new_ledgers, "SAMPLED_ROOTS", roots_count)
    in_part = StageLedger.of(rows, roots, more, SILENCES.empty_table())
    assert whole.anew is not None
    assert whole.anew.places is None
    assert in_part.anew is not None
    assert in_part.anew.places is not None
    assert in_part.anew.places.tolist() == [1, 2, 3]
    assert in_part.stage_rows().sort(pl.all()).equals(whole.stage_rows().sort(pl.all()))
    assert sorted(in_part.sums().rows()) == sorted(whole.sums().rows())
    assert story_of_rows(INFO, rows, roots, timescale, more) == story
    assert parts(story)[VAIN] == 500_900 - 105


def test_a_short_trace_has_all_ledgers_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exchanges = exchanges_of(PUT)
    timescale = clocks(client=0, proxy=0, storage1=0, storage2=0, storage3=0)
    connections: pa.Table = table("connections", [syn(105)])
    rows = rows_in_groups(tmp_path, link(exchanges), exchanges, 2)
    more = failed_connects_of(rows, INFO, lambda names: [connections.select(names)], timescale)
    monkeypatch.setattr(new_ledgers, "MOST_WHOLE_ROWS", len(exchanges))
    anew = StageLedger.of(rows, read_roots(rows), more, SILENCES.empty_table()).anew
    assert anew is not None
    assert anew.places is None
