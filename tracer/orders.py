"""What a collector wants of all agents of a session: to capture or not, and to keep less than their operators allow.

Orders come in the answers to reports. An agent's own command line is the upper bound: an order's filter is added to its
own by `and`, of two CPU budgets the smaller holds, and a payload policy must keep no more than its own does. What goes
beyond is refused whole and reported; the agent goes on as before.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tracer import _capture
from tracer.agent import CaptureOptions
from tracer.cpu_budget import LEAST_CPU_PERCENT, MOST_CPU_PERCENT
from tracer.errors import InputError, TracerError
from tracer.filters import compile_filter

NONE = "none"


@dataclass(frozen=True, slots=True)
class Orders:
    """Of a session. An empty filter or payload, or a budget of 0, is as each agent's operator gave it."""

    recording: bool = True
    expression: str = ""
    payload: str = ""
    cpu_percent: float = 0  # of one core


def read_orders(answer: Mapping[str, Any]) -> Orders | None:
    """The orders in a collector's answer; None if there are none, or they are not understood."""
    match answer.get("orders"):
        case {"recording": bool(recording), "expression": str(expression), "payload": str(payload)}:
            percent = answer["orders"].get("cpu_percent", 0)
            is_budget = isinstance(percent, int | float) and LEAST_CPU_PERCENT <= percent <= MOST_CPU_PERCENT
            return Orders(recording, expression, payload, percent if is_budget else 0)
    return None


def bounded_payload(allowed: str, asked: str) -> str:
    """The payload policy that is asked for, if it keeps no more than the allowed one. Raises: InputError.

    `heads` and a number of bytes are no bounds of each other: each keeps what the other does not.
    """
    if asked in ("", allowed):
        return allowed
    _capture.payload_snaplen(asked)
    if asked == NONE or (asked.isdecimal() and allowed.isdecimal() and int(asked) <= int(allowed)):
        return asked
    raise InputError(f"payload {asked} is more than this agent's operator allowed ({allowed})", "give none, or less")


def combined_filter(own: str, asked: str) -> str:
    """A filter that takes what both take. An empty one takes all TCP."""
    return f"({own}) and ({asked})" if own and asked else own or asked


def check_brackets(expression: str) -> None:
    """Raises: InputError if a bracket of the filter closes none of its own: it would close one put around it."""
    depth = 0
    for character in expression:
        depth += (character == "(") - (character == ")")
        if depth < 0:
            break
    if depth:
        raise InputError(f"the brackets of the filter {expression!r} do not match", "see: man pcap-filter")


def bounded_options(options: CaptureOptions, orders: Orders) -> CaptureOptions:
    """An agent's options under orders. Raises: InputError if they go beyond its own, or make no filter."""
    payload = bounded_payload(options.payload, orders.payload)
    expression = combined_filter(options.expression, orders.expression)
    if orders.expression:
        check_brackets(orders.expression)
        compile_filter(expression, options.snaplen or _capture.payload_snaplen(payload))
    budgets = [percent for percent in (options.cpu_percent, orders.cpu_percent) if percent]
    return replace(options, payload=payload, expression=expression, cpu_percent=min(budgets, default=0))


class Steering:
    """The options that hold now; `take` is called by the shipping thread, all else by the one that captures.

    Arguments: `options`, the operator's; `on_change` gets those that hold now.
    """

    def __init__(self, options: CaptureOptions, on_change: Callable[[CaptureOptions, bool, str], None]) -> None:
        self._own, self._on_change = options, on_change
        self._orders = Orders()
        self.options, self.is_recording = options, True
        self.turn = 0
        """Grows with each change of the two."""

    def take(self, orders: Orders | None) -> None:
        """Follow orders, those that were not known yet."""
        if orders is None or orders == self._orders:
            return
        self._orders, refused, wanted = orders, "", self.options
        try:
            wanted = bounded_options(self._own, orders)
        except TracerError as error:
            refused = str(error)
        if (wanted, orders.recording) != (self.options, self.is_recording):
            self.options, self.is_recording = wanted, orders.recording
            self.turn += 1
        self._on_change(self.options, self.is_recording, refused)
