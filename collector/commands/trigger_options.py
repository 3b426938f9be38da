"""The options of `tracer collect` about triggers."""

from collections.abc import Callable
from typing import Any

import click

from collector.service.trigger_rules import parse_condition
from collector.service.trigger_settings import NO_TRIGGERS, TriggerSettings
from tracer.errors import InputError

DAY_SECONDS = 86_400


def trigger_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add them to a command, which gets them as `triggers`, `trigger_before` and so on: see `operators_triggers`."""
    seconds = click.FloatRange(0, DAY_SECONDS / 4)
    for option in (
        click.option(
            "--trigger-most",
            type=click.IntRange(1),
            default=NO_TRIGGERS.most_windows,
            show_default=True,
            metavar="N",
            help="Windows of a trigger that are kept; it fires no more until one is deleted.",
        ),
        _seconds("--trigger-hold-off", NO_TRIGGERS.hold_off_ns, seconds, "After it fired, a trigger waits so long."),
        _seconds("--trigger-after", NO_TRIGGERS.after_ns, seconds, "What a trigger keeps of the time after it."),
        _seconds("--trigger-before", NO_TRIGGERS.before_ns, seconds, "What a trigger keeps of the time before it."),
        click.option(
            "--trigger",
            "triggers",
            multiple=True,
            metavar="CONDITION",
            help="When a request, percentile or finding meets CONDITION, keep the packets before and after from all "
            "hosts, and make their trace: 'status:error', 'p99 of PUT > 50ms', 'finding:server_silent'. Repeatable.",
        ),
    ):
        command = option(command)
    return command


def _seconds(name: str, default_ns: int, seconds: click.FloatRange, text: str) -> Callable[[Any], Any]:
    return click.option(name, type=seconds, default=default_ns / 1e9, show_default=True, metavar="SECONDS", help=text)


def operators_triggers(given: dict[str, Any], live_window: float) -> TriggerSettings:
    """The triggers that the options give. Raises: InputError for what is no condition."""
    conditions = tuple(parse_condition(text) for text in dict.fromkeys(given["triggers"]))
    if conditions and not live_window:
        raise InputError("triggers judge live traces, and --live-window 0 makes none", "give another --live-window")
    return TriggerSettings(
        conditions,
        before_ns=round(given["trigger_before"] * 1e9),
        after_ns=round(given["trigger_after"] * 1e9),
        hold_off_ns=round(given["trigger_hold_off"] * 1e9),
        most_windows=given["trigger_most"],
    )
