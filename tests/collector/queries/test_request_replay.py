"""Requests played again: what each event waits for, and what a change takes out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from collector.queries.request_replay import Call, duration_now_ns, fan_outs, quantile_ratio


def call(begin: int, arrived: int, answered: int, end: int, host: str = "s1", **more: object) -> Call:
    """A call of a kind, seen at both ends; its answer is sent at once."""
    kind = ("object", "PUT", "")
    times = {
        "begin_ns": begin,
        "heard_ns": arrived,
        "arrived_ns": arrived,
        "answered_ns": answered,
        "sent_ns": answered,
    }
    return Call(**{**times, "end_ns": end, "kind": kind, "target": "/d/o", "server_host": host, **more})  # type: ignore[arg-type]


def request(*calls: Call, answered: int = 900, end: int = 1_000) -> Call:
    """A client's request that arrives after 100, with its calls."""
    return call(0, 100, answered, end, "proxy", kind=("proxy", "PUT", ""), calls=list(calls))


def three(*ends: int) -> list[Call]:
    """Calls made at once, to three servers, that end then."""
    return [call(150, 160, end - 10, end, f"s{place}") for place, end in enumerate(ends, 1)]


def test_nothing_changed_is_as_measured() -> None:
    inner = call(200, 210, 300, 310, "s9")
    root = request(call(150, 160, 400, 420, calls=[inner]), call(450, 460, 800, 810, "s2"))
    assert duration_now_ns(root) == 1_000
    odd = request(call(50, 40, 30, 20), call(950, 960, 990, 1_200))  # clocks that are off, an answer before the calls
    assert duration_now_ns(odd) == 1_000


TIMES = st.integers(0, 1_000)


@given(st.lists(st.tuples(TIMES, TIMES, TIMES, TIMES, st.sampled_from(["s1", "s2", "s3"])), max_size=6), TIMES, TIMES)
def test_whatever_the_times_are_nothing_changed_is_as_measured(
    times: list[tuple[int, int, int, int, str]], answered: int, end: int
) -> None:
    root = request(*sorted((call(*each) for each in times), key=lambda each: each.begin_ns), answered=answered, end=end)
    assert duration_now_ns(root) == root.duration_ns
    assert duration_now_ns(root, 99) == root.duration_ns, "no quorum is greater than what was waited for"


def test_thousands_of_calls_take_no_longer_each() -> None:
    many = [call(100 + 10 * at, 101 + 10 * at, 108 + 10 * at, 109 + 10 * at) for at in range(20_000)]
    root = request(*many, answered=300_000, end=300_100)
    many[0].work_ratio = 0.0
    assert duration_now_ns(root, 1) == root.duration_ns - 7


def test_a_quicker_call_uncovers_the_next_slowest() -> None:
    slow, next_slowest = three(800, 700)
    slow.work_ratio = 0.0  # it ends at 180
    assert duration_now_ns(request(slow, next_slowest)) == 900  # from 700 on, as long as from 800 on before


def test_one_after_the_other_both_count() -> None:
    first, second = call(150, 160, 390, 400), call(450, 460, 790, 800)
    first.work_ratio = second.work_ratio = 0.5
    assert duration_now_ns(request(first, second)) == 1_000 - 115 - 165


def test_a_servers_own_time_is_without_its_calls() -> None:
    root = request(call(150, 160, 390, 400), call(300, 310, 490, 500))
    assert root.own_ns == (150 - 100) + (900 - 500)
    root.work_ratio = 0.5
    assert duration_now_ns(root) == (100 + 100) + 200 + 200 + 100  # the second call begins after half as long


@pytest.mark.parametrize(("quorum", "took"), [(1, 500 + 100 + 100), (2, 600 + 100 + 100), (3, 1_000), (None, 1_000)])
def test_a_quorum_waits_for_so_many(quorum: int | None, took: int) -> None:
    assert duration_now_ns(request(*three(500, 600, 800)), quorum) == took


def test_what_a_quorum_did_not_wait_for_is_not_waited_for_with_a_greater_one() -> None:
    late = request(*three(500, 800, 950))
    assert duration_now_ns(late, 3) == 1_000
    assert duration_now_ns(late, 1) == 700


def test_a_fan_out_is_the_same_asked_of_several_at_once() -> None:
    (group,) = fan_outs(request(*three(500, 600, 800)))
    assert [each.server_host for each in group] == ["s1", "s2", "s3"]
    one, other = three(500, 600)
    assert not fan_outs(request(one, replace(other, server_host="s1"))), "two of one host"
    assert not fan_outs(request(one, replace(other, target="/d/another")))
    assert not fan_outs(request(one, replace(other, kind=("object", "GET", ""))))
    assert not fan_outs(request(one, call(550, 560, 590, 600, "s2"))), "one after the other"


def test_loss_is_taken_out_of_where_it_was() -> None:
    assert duration_now_ns(call(0, 500, 600, 700, before_ns=200, sending_ns=100)) == 400
    assert duration_now_ns(call(0, 100, 200, 700, sent_ns=500, within_ns=250)) == 450
    assert duration_now_ns(call(0, 100, 200, 700, within_ns=400)) == 300, "the last packet was lost: it is on the way"
    assert duration_now_ns(call(0, 100, 200, 700, before_ns=5_000)) == 600, "not less than nothing"


def test_what_is_slower_takes_longer() -> None:
    assert duration_now_ns(call(0, 100, 200, 300, before_ns=-50, sending_ns=-20, after_ns=-30)) == 400


def test_a_body_waits_for_all_that_had_been_allowed_to_send() -> None:
    """As Swift's proxy does: it sends the body once each server has said 100."""
    quick = call(150, 720, 800, 810, "s1", continue_ns=200, body_ns=710, heard_ns=160)
    lossy = call(150, 720, 790, 800, "s2", continue_ns=700, body_ns=710, heard_ns=160, before_ns=450)
    assert duration_now_ns(request(quick, lossy)) == 1_000 - 450
    lossy.before_ns = 600  # then the other one is the last
    assert duration_now_ns(request(quick, lossy)) == 1_000 - 500
    alone = call(0, 500, 600, 700, continue_ns=300, body_ns=350, before_ns=100, sending_ns=50)
    assert duration_now_ns(alone) == 550


def test_an_answer_that_streams_through_waits_for_its_source() -> None:
    source = call(150, 160, 250, 800, sent_ns=790, within_ns=300)
    root = request(source, answered=300, end=1_000)
    root.sent_ns = 810
    assert duration_now_ns(root) == 700
    source.is_critical = False
    assert duration_now_ns(root) == 1_000


def test_a_call_whose_server_was_not_seen_is_one_stretch() -> None:
    unseen = Call(0, 500, before_ns=100, within_ns=50, calls=[call(100, 110, 120, 130)])
    assert duration_now_ns(unseen) == 350


def test_a_pause_is_no_part_of_it() -> None:
    root = request()
    root.pause_ns = 50
    assert duration_now_ns(root) == root.duration_ns == 950


def test_one_server_gets_the_times_of_another_rank_by_rank() -> None:
    slow = [call(0, 0, own, own, "s1") for own in (100, 300, 200)]
    fast = [call(0, 0, own, own, "s2") for own in (10, 20, 30)]
    ratio = quantile_ratio([*slow, *fast], "s1", "s2", fewest=3)
    assert [ratio(each) for each in slow] == [0.1, 0.1, 0.1]
    assert quantile_ratio([*slow, *fast], "s1", "s2", fewest=4)(slow[0]) is None
    other = replace(slow[0], kind=("account", "PUT", ""))
    assert ratio(other) is None
