"""A daemon: repeats one job for the devices of one host.

A pass goes over all there is, and its interval passes before the next. A pass that took long is followed by a pause
that is longer in proportion, so that a daemon never has more than a share of a core (`BUSY_SHARE_MAX`), however much
there is to go over.
"""

import asyncio
import dataclasses
import random
import sqlite3
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import NoReturn, Protocol

from storage_cluster.servers.disks.devices import Devices
from storage_cluster.servers.http.backend import Backend
from storage_cluster.topology import Device, Intervals

BUSY_SHARE_MAX = 0.2

Say = Callable[[str], None]
"""Writes a line to the daemon's log."""


@dataclasses.dataclass(frozen=True)
class DaemonContext:
    """The environment of a daemon: its requests to other servers, its host, the devices there."""

    backend: Backend
    host: str
    devices: Devices
    say: Say

    @property
    def intervals(self) -> Intervals:
        """The intervals of background work."""
        return self.backend.topology.intervals

    def local_device(self, name: str, of: tuple[Device, ...]) -> Device | None:
        """The one of these devices that this host has under that name; None if none is."""
        return next((device for device in of if (device.host, device.name) == (self.host, name)), None)

    def own(self, name: str) -> Device:
        """A device of this host, whether or not a ring has it."""
        return Device(self.host, name, zone=0)


class Daemon(Protocol):
    """One job."""

    async def run_once(self) -> str:
        """Do one pass over all data. Returns its actions as a line for the log; "" if none."""


async def run_forever(
    daemon: Daemon,
    interval_s: float,
    say: Say,
    begin_pass: Callable[[], None],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> NoReturn:
    """Repeat passes, the first one after a random part of the interval, so that hosts do not work in step."""
    await sleep(random.uniform(0, interval_s))
    while True:
        begin_pass()
        began_s, began_cpu_s = time.monotonic(), time.process_time()
        try:
            done = await daemon.run_once()
        except (OSError, sqlite3.Error) as error:  # a disk that is full, failing or gone: the next pass may fare better
            done = f"pass broken off: {error}"
        if done:
            say(f"{done} ({time.monotonic() - began_s:.2f} s)")
        busy_s = time.process_time() - began_cpu_s
        await sleep(max(interval_s, busy_s / BUSY_SHARE_MAX))


def counts_text(counts: Mapping[str, int]) -> str:
    """Counts in words, without zeros: `3 objects pushed, 1 handoff emptied`."""
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count)
