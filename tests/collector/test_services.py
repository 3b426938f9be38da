"""What is known of services, as data."""

import re
from pathlib import Path

import polars as pl
import pytest

from collector.foreground import of_clients
from collector.services import (
    client_service,
    id_headers,
    is_background,
    known_services,
    target_patterns,
    target_words,
)
from collector.spans import link
from collector.story import joined, outermost
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
        [callers]
        "our-gateway" = "gateway"
        [targets]
        index = "/{account}/{object}"
        """
    )
    shipped = id_headers()
    monkeypatch.setenv("TWINTAP_SERVICES", str(own))
    assert id_headers() == ("x-correlation-id", *shipped)
    assert is_background("our-scrubber/2")
    assert is_background("object-replicator 1")
    ports = known_services()
    assert (ports[8080], ports[7000], ports[6200]) == ("gateway", "index", "swift-object")
    assert client_service("our-gateway 3") == "gateway"
    found = re.match(target_patterns()["index"], "/me/thing")
    assert found
    assert found.groupdict() == {"account": "me", "object": "thing"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
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
def test_a_wrong_file_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, message: str) -> None:
    own = tmp_path / "services.toml"
    if text is not None:
        own.write_text(text)
    monkeypatch.setenv("TWINTAP_SERVICES", str(own))
    with pytest.raises(InputError, match=message):
        known_services()


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
    rows = joined(link(exchanges), exchanges)
    assert outermost(rows)["exchange_id"].to_list() == [1]


def test_on_a_single_host_all_but_daemons_are_clients() -> None:
    exchanges = exchanges_of(
        """
        one > one 0 10 90 100
        one > one 200 210 290 300 daemon
        """
    )
    roots = pl.DataFrame(exchanges)
    assert of_clients(roots, roots)["exchange_id"].to_list() == [1]
