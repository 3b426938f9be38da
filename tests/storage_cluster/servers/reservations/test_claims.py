"""Reservations in JSON: what is written is read again; whatever else arrives is refused in words, and nothing fails."""

import json
import random
from typing import Any

import pytest

from storage_cluster.servers.reservations.claims import (
    AccessReservation,
    ClaimError,
    SpaceReservation,
    format_time,
    parse_time,
)

NOW_S = 1_800_000_000.0
ACCESS = AccessReservation("b", "read", 10.5, NOW_S, NOW_S + 60, "k/é", "test:tester", "a1", {"h/d": 5}, is_spread=True)
SPACE = SpaceReservation("b", 1000, NOW_S, NOW_S + 60, 2.5, "test:tester", "s1")
VALUES = (
    None,
    "",
    "x",
    -1,
    0,
    1,
    1.5,
    1e400,
    float("nan"),
    True,
    [],
    {},
    {"h/d": "x"},
    "2026-13-01",
    "9999-12-31T23:59:59Z",
)


def test_what_is_written_is_read_again() -> None:
    assert AccessReservation.from_json(json.loads(json.dumps(ACCESS.to_json())), 0.0) == ACCESS
    assert SpaceReservation.from_json(json.loads(json.dumps(SPACE.to_json())), 0.0) == SPACE


def test_without_a_start_it_is_now() -> None:
    asked = {"bucket": "b", "direction": "write", "mb_per_s": 1, "end": format_time(NOW_S + 5)}
    assert AccessReservation.from_json(asked, NOW_S).start_s == NOW_S


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"direction": "both"}, "neither read nor write"),
        ({"direction": "write"}, "no key"),
        ({"key": ""}, "of an object"),
        ({"mb_per_s": 0}, "no number from"),
        ({"mb_per_s": True}, "no number from"),
        ({"end": "2020-01-01T00:00:00Z"}, "not after the start"),
        ({"end": "soon"}, "no time in ISO 8601"),
        ({"bucket": ""}, "empty"),
        ({"bucket": "b" * 2000}, "missing or no text"),
        ({"colour": 1}, "no field 'colour'"),
    ],
)
def test_what_is_no_reservation_is_refused_in_words(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ClaimError, match=said):
        AccessReservation.from_json(ACCESS.to_json() | changed, NOW_S)


def test_no_value_of_a_field_makes_it_fail() -> None:
    source = random.Random(4)
    for _ in range(3000):
        kind, good = source.choice(((AccessReservation, ACCESS), (SpaceReservation, SPACE)))
        fields = good.to_json() | {source.choice(list(good.to_json())): source.choice(VALUES)}
        try:
            kind.from_json(fields, NOW_S)
        except ClaimError as error:
            assert str(error)
    for value in VALUES:
        if not isinstance(value, dict):
            with pytest.raises(ClaimError):
                SpaceReservation.from_json(value, NOW_S)


def test_times_without_a_zone_are_utc() -> None:
    assert parse_time("2027-01-15T08:00:00") == parse_time("2027-01-15T08:00:00Z") == NOW_S
    assert parse_time(format_time(NOW_S + 0.25)) == NOW_S + 0.25
