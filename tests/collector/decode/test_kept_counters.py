"""What counters say of an agent's CPU budget."""

from collector.capture_files.kept import Keeping, Kept
from collector.decode.kept_counters import kept_counters

SECOND, BASE = 1_000_000_000, 1_764_165_600_000_000_000


def test_an_agent_that_kept_all_has_none() -> None:
    assert list(kept_counters("db", Kept([Keeping(BASE)]))) == []


def test_they_say_since_when_what_was_kept_also_where_the_agent_was_killed() -> None:
    changes = [
        Keeping(BASE),
        Keeping(BASE + 5 * SECOND, 0, 0),
        Keeping(BASE + 9 * SECOND, 2, 0),
        Keeping(BASE + 60 * SECOND),
    ]
    sampled, shortened = kept_counters("db", Kept(changes, left_out_count=0, shortened_count=7))
    assert (sampled.name, sampled.severity, sampled.count) == ("connections_sampled", "data_loss", 1)
    assert ": all, 1/4 from 2025-11-26 14:00:09 UTC, all from 2025-11-26 14:01:00 UTC. " in sampled.remedy
    assert (shortened.name, shortened.severity, shortened.count) == ("heads_shortened", "notice", 7)
    assert ": whole, none from 2025-11-26 14:00:05 UTC, whole from 2025-11-26 14:01:00 UTC. " in shortened.remedy


def test_of_many_changes_the_first_and_the_last_are_listed() -> None:
    changes = [Keeping(BASE + turn * SECOND, turn % 2) for turn in range(101)]
    (sampled,) = kept_counters("db", Kept(changes))
    assert ", 92 more changes, " in sampled.remedy
    assert sampled.remedy.count("UTC") == 8
