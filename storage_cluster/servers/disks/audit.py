"""Reads of an object auditor, as the modelled medium sees them: one after the other, at a steady pace at most.

Swift's object auditor goes through all objects of a device again and again. The bundled daemon of that name reads real
files, which are not behind the model; so a topology can say at what pace the medium is read beside the requests
(`audit_reads_per_s`). One read is outstanding at a time: a slow medium is audited more slowly.
"""

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable

from storage_cluster.servers.disks.medium import METADATA_BYTES, Medium


async def audit(
    medium: Medium, reads_per_s: int, monotonic: Callable[[], float] = time.monotonic, count: int | None = None
) -> None:
    """Read so many times a second, each time elsewhere; for ever unless `count` says how often."""
    due_s = monotonic()
    for number in itertools.count() if count is None else range(count):
        wait_s = 0.0
        with contextlib.suppress(OSError):  # a fault of the disk: the next file
            wait_s = medium.read(METADATA_BYTES, -2 - number)
        due_s = max(due_s + 1 / reads_per_s, monotonic() + wait_s)
        await asyncio.sleep(due_s - monotonic())
