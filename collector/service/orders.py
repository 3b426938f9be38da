"""What all agents of a session are to do: capture or not, with which filter, keeping how much of the payload.

    DATA/sessions/<session>/orders.json

Agents get it in the answers to their reports, and never keep more than their own operators allow (`tracer.orders`).
Each reports what it does, and what it refused.
"""

import threading
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, Field, ValidationError, field_validator

from collector.service.ingest import disk_errors
from collector.trace.data_directory import session_folder
from tracer import _capture
from tracer.cpu_budget import LEAST_CPU_PERCENT, MOST_CPU_PERCENT
from tracer.filters import compile_filter
from tracer.orders import check_brackets
from tracer.private_files import write_durably

ORDERS_FILE = "orders.json"


class Orders(BaseModel, frozen=True):
    """As `tracer.orders.Orders`."""

    recording: bool = True
    expression: str = Field(default="", max_length=4096, description="A filter as for tcpdump, beside each agent's own")
    payload: str = Field(default="", max_length=16, description="none, heads or a number; empty = as each agent's own")
    cpu_percent: float = Field(default=0, description="Of one core, at most their own; 0 = as each agent's own")

    @field_validator("cpu_percent")
    @classmethod
    def _is_budget(cls, percent: float) -> float:
        if percent and not LEAST_CPU_PERCENT <= percent <= MOST_CPU_PERCENT:
            raise ValueError(f"a CPU budget is {LEAST_CPU_PERCENT:g} to {MOST_CPU_PERCENT:,} % of one core")
        return percent


class SessionOrders:
    """The orders of all sessions; safe to call from several threads."""

    def __init__(self, data: Path) -> None:
        self._data, self._lock = data, threading.Lock()
        self._known: dict[str, Orders] = {}

    def get(self, session: str) -> Orders:
        """The orders of a session; the defaults if none were given. Raises: InputError for what is no name."""
        folder = session_folder(self._data, session)
        with self._lock:
            if session not in self._known:
                found = Orders()
                with suppress(OSError, ValidationError):
                    found = Orders.model_validate_json((folder / ORDERS_FILE).read_bytes())
                self._known[session] = found
            return self._known[session]

    def give(self, session: str, orders: Orders) -> None:
        """Have all agents of a session follow these. Raises: InputError for a wrong filter or policy; ResourceError."""
        if orders.payload:
            _capture.payload_snaplen(orders.payload)
        if orders.expression:
            check_brackets(orders.expression)
            compile_filter(orders.expression, _capture.payload_snaplen("none"))
        folder = session_folder(self._data, session)
        with self._lock, disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            write_durably(folder / ORDERS_FILE, orders.model_dump_json())
            self._known[session] = orders

    def forget(self, session: str) -> None:
        """It was deleted."""
        with self._lock:
            self._known.pop(session, None)
