"""What is known of services, as data."""

import re

import polars as pl
import pytest

from collector.foreground import of_clients
from collector.services import is_background, target_patterns
from collector.spans import link
from collector.story import joined, outermost
from tests.helpers.exchange_lines import exchanges_of


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
