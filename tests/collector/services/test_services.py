"""What is known of services, as data."""

import re
from pathlib import Path

import polars as pl
import pytest

from collector.capture_files.readers import Clue
from collector.reporting.request_rows import RequestRows
from collector.reporting.root_requests import read_roots
from collector.requests.spans import link
from collector.services.client_requests import of_clients
from collector.services.services import (
    client_service,
    clues,
    id_headers,
    is_background,
    names_by_operator,
    ports_by_operator,
    products,
    target_patterns,
    target_words,
)
from tests.helpers.exchange_lines import exchanges_of
from tracer.errors import InputError


@pytest.mark.parametrize(
    ("user_agent", "expected"),
    [
        ("object-replicator 4711", True),
        ("object-replicator", True),
        ("container-updater/1.0", True),
        ("Swift Object Expirer", True),
        ("object-replicatory 1", False),
        ("proxy-server 12", False),
        ("object-server 12", False),
        ("curl/8", False),
        ("", False),
    ],
)
def test_daemons_are_known_by_their_user_agent(user_agent: str, expected: bool) -> None:
    assert is_background(user_agent) is expected


@pytest.mark.parametrize(
    ("user_agent", "expected"),
    [
        ("proxy-server 4711", "swift-proxy"),
        ("object-server 12", "swift-object"),
        ("object-replicator 12", "object-replicator"),
        ("proxy-servers", None),
        ("curl/8", None),
        ("", None),
    ],
)
def test_who_asks(user_agent: str, expected: str | None) -> None:
    assert client_service(user_agent) == expected


def test_an_operators_file_adds_to_what_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "services.toml"
    own.write_text(
        """
        ids.headers = ["x-correlation-id"]
        background.user_agents = ["our-scrubber"]
        [ports]
        8080 = "gateway"
        7000 = "index"
        [names]
        "db1:5432" = "orders"
        [callers]
        "our-gateway" = "gateway"
        [clues]
        thing-answers = { from = "server", header = "server: Thing" }
        thing-hello = { from = "client", bytes = ["54 ?? 48"] }
        [products]
        thing = { seen = [["thing-answers"], ["thing-hello"]] }
        [targets]
        index = "/{account}/{object}"
        """
    )
    shipped = id_headers()
    monkeypatch.setenv("TWINTAP_SERVICES", str(own))
    assert id_headers() == ("x-correlation-id", *shipped)
    assert is_background("our-scrubber/2")
    assert is_background("object-replicator 1")
    assert ports_by_operator() == {8080: "gateway", 7000: "index"}
    assert names_by_operator() == {"db1:5432": "orders"}
    assert (products()[0].name, products()[-1].name) == ("thing", "HTTP/2")
    assert clues()["thing-answers"] == Clue(from_client=False, header=("server", "Thing"))
    assert clues()["thing-hello"].begins == ((0x54, -1, 0x48),)
    assert client_service("our-gateway 3") == "gateway"
    found = re.match(target_patterns()["index"], "/me/thing")
    assert found
    assert found.groupdict() == {"account": "me", "object": "thing"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[names]\ndb1 = 'orders'", "has db1"),
        ("[clues]\nx = { header = 'server: X' }", "who sends it"),
        ("[clues]\nx = { from = 'server', bytes = ['?? ??'] }", "clue x cannot be understood"),
        ("[clues]\nx = { from = 'server', bytes = ['1'] }", "clue x cannot be understood"),
        ("[clues]\nx = { from = 'server' }", "clue x cannot be understood"),
        ("[clues]\nx = { from = 'server', head = 'a: b' }", "clue x cannot be understood"),
        ("[clues]\nx = { from = 'server', header = 'server' }", "clue x cannot be understood"),
        ("[clues]\nx = { from = 'client', protocol = 'nats' }", "clue x looks for requests of nats"),
        ("[clues]\nx = { from = 'client', protocol = 5 }", "clue x cannot be understood"),
        ("[products]\nx = { seen = [['nothing']] }", "names the clue nothing"),
        ("[products]\nx = { seen = 'nothing' }", "product x cannot be understood"),
        ("[port]\n80 = 'web'", "has port"),
        ("[ports]\nweb = 'web'", "has web"),
        ("[ports]\n80 = 80", "has 80"),
        ("ids.headers = [1]", "has 1"),
        ("ids.headers = 'x-id'", "is no list"),
        ("ports = 'web'", "has ports"),
        ("not toml", "cannot be read"),
        (None, "cannot be read"),
    ],
)
def test_a_wrong_file_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, message: str
) -> None:
    own = tmp_path / "services.toml"
    if text is not None:
        own.write_text(text)
    monkeypatch.setenv("TWINTAP_SERVICES", str(own))
    with pytest.raises(InputError, match=message):
        products()


@pytest.mark.parametrize(
    ("service", "target", "expected"),
    [
        (
            "swift-proxy",
            "/v1/AUTH_a/c/o/with/slashes?x=1",
            {"account": "AUTH_a", "container": "c", "object": "o/with/slashes"},
        ),
        ("swift-proxy", "/v1/AUTH_a/c", {"account": "AUTH_a", "container": "c"}),
        ("swift-proxy", "/v1/AUTH_a?format=json", {"account": "AUTH_a"}),
        ("swift-proxy", "/info", None),
        (
            "swift-object",
            "/d1/16/AUTH_a/c/o",
            {"device": "d1", "partition": "16", "account": "AUTH_a", "container": "c", "object": "o"},
        ),
        (
            "swift-container",
            "/d2/98/AUTH_a/c",
            {"device": "d2", "partition": "98", "account": "AUTH_a", "container": "c"},
        ),
        ("swift-account", "/d2/98/AUTH_a", {"device": "d2", "partition": "98", "account": "AUTH_a"}),
        ("s3", "/bucket/key/1", {"container": "bucket", "object": "key/1"}),
    ],
)
def test_parts_of_a_target(service: str, target: str, expected: dict[str, str] | None) -> None:
    found = re.match(target_patterns()[service], target)
    for part in ("device", "partition"):
        prefix, place = target_words(part).get(service, ("", 0))
        if prefix and expected:
            assert target.startswith(prefix)
            assert target.removeprefix(prefix).split("/")[place] == expected[part]
    assert (found and {name: value for name, value in found.groupdict().items() if value}) == expected


def test_daemons_requests_are_not_the_clients() -> None:
    exchanges = exchanges_of(
        """
        client > proxy    0 10 90 100 tx=a
        proxy > storage1 20 22 60  62 tx=a
        storage1 > storage2 500 510 590 600 daemon
        storage2 > storage1 700 710 790 800
        """
    )
    roots = read_roots(RequestRows.of_tables(link(exchanges), exchanges))
    assert roots.ids[roots.outermost()].tolist() == [1]


def test_on_a_single_host_all_but_daemons_are_clients() -> None:
    exchanges = exchanges_of(
        """
        one > one 0 10 90 100
        one > one 200 210 290 300 daemon
        """
    )
    roots = pl.DataFrame(exchanges)
    assert of_clients(roots, roots)["exchange_id"].to_list() == [1]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("client > web 0 10 90 100\n - > web - 10 90 -\n web > db 20 22 60 62", [1, 2]),
        ("- > web - 10 90 -\n web > - 20 - - 62", [1]),
        ("client > - 0 - - 100\n - > web - 10 90 -", [1]),
        ("- > web - 10 90 -\n web > - 20 - - 62\n - > db - 30 50 -", [1]),
        ("- > one - 10 90 -\n one > - 20 - - 62\n - > two - 10 90 -\n two > - 20 - - 62", [1, 3]),
    ],
    ids=[
        "one client was captured, another was not",
        "one server alone was captured",
        "what lies between the client and the server was not captured",
        "what lies between two servers was not captured",
        "two servers call one that was not captured",
    ],
)
def test_clients_that_were_not_captured(lines: str, expected: list[int]) -> None:
    roots = pl.DataFrame(exchanges_of(lines))
    assert of_clients(roots, roots)["exchange_id"].to_list() == expected
