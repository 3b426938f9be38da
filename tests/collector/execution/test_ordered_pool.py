"""Parts are worked on side by side and stored in their order, and an error ends all of it."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Lock

import pytest

from collector.execution.ordered_pool import run_in_order, with_work_behind

WAIT_S = 60


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(3) as pool:
        yield pool


def test_results_are_stored_in_order_though_the_first_takes_longest(pool: ThreadPoolExecutor) -> None:
    later_are_done, stored, done, lock = Event(), list[tuple[str, int]](), set[str](), Lock()

    def work(part: str) -> int:
        if part == "a":
            assert later_are_done.wait(WAIT_S)
        with lock:
            done.add(part)
            if done >= {"b", "c"}:
                later_are_done.set()
        return ord(part)

    run_in_order(pool, 3, "abcdefg", work, lambda part, result: stored.append((part, result)))
    assert stored == [(part, ord(part)) for part in "abcdefg"]


def test_a_thread_goes_on_while_its_result_waits_but_not_far(pool: ThreadPoolExecutor) -> None:
    begun = {part: Event() for part in range(5)}
    stored = list[int]()

    def work(part: int) -> int:
        begun[part].set()
        if part == 0:
            assert begun[2].wait(WAIT_S)
            assert not begun[3].wait(0.1)
        return part

    run_in_order(pool, 2, range(5), work, lambda part, _: stored.append(part))
    assert stored == [0, 1, 2, 3, 4]


def test_one_worker_does_all(pool: ThreadPoolExecutor) -> None:
    steps: list[str] = []
    run_in_order(
        pool, 1, [1, 2], lambda part: steps.append(f"work {part}"), lambda part, _: steps.append(f"store {part}")
    )
    assert steps == ["work 1", "store 1", "work 2", "store 2"]


@pytest.mark.parametrize("fails", ["work", "store"])
def test_an_error_ends_it_and_later_parts_are_neither_begun_nor_stored(pool: ThreadPoolExecutor, fails: str) -> None:
    begun, stored = list[int](), list[int]()

    def work(part: int) -> int:
        begun.append(part)
        if fails == "work" and part == 1:
            raise ZeroDivisionError
        return part

    def store(part: int, _: int) -> None:
        if fails == "store" and part == 1:
            raise ZeroDivisionError
        stored.append(part)

    with pytest.raises(ZeroDivisionError):
        run_in_order(pool, 2, range(1_000), work, store)
    assert stored == [0]
    assert len(begun) < 10


def test_nothing_to_do(pool: ThreadPoolExecutor) -> None:
    run_in_order(pool, 3, [], lambda part: part, lambda *_: pytest.fail("there is no part"))


def test_work_on_a_part_is_done_while_the_next_one_is_made_and_all_before_the_end() -> None:
    next_is_made, worked = Event(), list[int]()

    def parts() -> Iterator[int]:
        yield 0
        next_is_made.set()
        yield 1

    def work(part: int) -> None:
        assert next_is_made.wait(WAIT_S)
        worked.append(part)

    taken = list(with_work_behind(parts(), work))
    assert (taken, worked) == ([0, 1], [0, 1])


@pytest.mark.parametrize("failing", [0, 1])
def test_an_error_of_the_work_behind_is_raised(failing: int) -> None:
    def work(part: int) -> None:
        if part == failing:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        list(with_work_behind([0, 1], work))
