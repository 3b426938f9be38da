"""What opens windows by itself, and how much they keep. Each is an option of `tracer collect`."""

from dataclasses import dataclass

from collector.service.trigger_rules import Condition


@dataclass(frozen=True, slots=True)
class TriggerSettings:
    """The conditions, and the windows of all triggers. Times in ns."""

    conditions: tuple[Condition, ...] = ()
    before_ns: int = 30_000_000_000
    after_ns: int = 10_000_000_000
    hold_off_ns: int = 60_000_000_000  # after a trigger fired, it does not fire for the same session
    most_windows: int = 100  # of each trigger; beyond, it does not fire until one is deleted


NO_TRIGGERS = TriggerSettings()
