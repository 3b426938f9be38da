"""The profile times what there is, and books each moment once."""

import time

from benchmarks import profile


def test_every_stage_names_a_function_that_exists() -> None:
    assert all(callable(getattr(owner, name)) for owner, name, _ in profile.places())
    assert all("" in titles for owner, name, titles in profile.places()), "a title for any other argument"


def test_a_stage_is_booked_without_those_inside_it() -> None:
    booked = profile.Profile()
    outer, inner = list(profile.STAGES)[:2]
    started = time.process_time()
    with booked.stage(outer), booked.stage(inner):
        while time.process_time() - started < 0.02:
            pass
    assert 0.019 <= booked.seconds[inner] <= 0.04
    assert booked.seconds[outer] < 0.01
