"""What all agents of a session are to do: capture or not, with which filter, keeping how much of the payload.

    DATA/sessions/<session>/orders.json

Agents get it in the answers to their reports, and never keep more than their own operators allow (`tracer.orders`).
Each reports what it does, and what it refused. The file is read again when it is another one: another collector that
shares the directory may have written it.
"""

import threading
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, Field, ValidationError, field_validator

from collector.service.ingest import disk_errors
from collector.service.shared_data import Version, file_version
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
        self._known: dict[str, tuple[Version | None, Orders]] = {}

    def get(self, session: str) -> Orders:
        """The orders of a session; the defaults if none were given. Raises: InputError for what is no name."""
        file = session_folder(self._data, session) / ORDERS_FILE
        with self._lock:
            version = file_version(file)
            known = self._known.get(session)
            if known is None or known[0] != version:  # another collector may have given them
                found = Orders()
                with suppress(OSError, ValidationError):
                    found = Orders.model_validate_json(file.read_bytes())
                known = self._known[session] = version, found
            return known[1]

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
            self._known[session] = file_version(folder / ORDERS_FILE), orders

    def forget(self, session: str) -> None:
        """It was deleted."""
        with self._lock:
            self._known.pop(session, None)
