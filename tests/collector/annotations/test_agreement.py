"""What an annotation says of a request, beside what packets show."""

import pytest

from collector.annotations.agreement import Said, heading_of


def annotation(duration_ns: int, seen_ns: int | None, **more: object) -> Said:
    given = {
        "annotation_id": 0,
        "kind": "log",
        "format": "nginx",
        "host": "web",
        "service": "",
        "name": "GET",
        "text": "",
    }
    given |= {
        "exchange_id": 1,
        "joined_by": "id",
        "duration_uncertainty_ns": 1_000,
        "phases": (),
        "severity": "",
    } | more
    named = {name: value for name, value in given.items() if name in Said.__struct_fields__}
    return Said(**named, duration_ns=duration_ns, seen_ns=seen_ns)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (annotation(5_000, 4_500), "as packets show"),
        (annotation(9_000, 4_000), "5.0 µs longer than packets show: they disagree"),
        (annotation(9_000, 4_000, kind="span"), "5.0 µs longer than its packets: it ended after the last of them"),
        (annotation(4_000, 9_000), "packets show 5.0 µs more, before its clock began or after it handed the answer on"),
        (annotation(5_000, 4_500, is_client=True), "as packets show"),
        (
            annotation(9_000, 4_000, is_client=True),
            "5.0 µs longer than its packets: before the first, or after the last",
        ),
        (annotation(4_000, 9_000, is_client=True), "packets show 5.0 µs more: it ended before the answer had arrived"),
        (annotation(9_000, 4_000, is_inner=True), ""),
        (annotation(9_000, None), ""),
        (annotation(0, 4_000), ""),
    ],
)
def test_how_a_duration_compares(given: Said, words: str) -> None:
    assert given.comparison == words


@pytest.mark.parametrize(
    ("kinds", "heading"),
    [(["log"], "As its logs say"), (["span"], "As its spans say"), (["span", "log"], "As its logs and spans say")],
)
def test_who_says_it(kinds: list[str], heading: str) -> None:
    assert heading_of([annotation(1, 1, kind=kind) for kind in kinds]) == heading
