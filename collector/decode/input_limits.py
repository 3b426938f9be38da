"""Limits of the input, so that no single file or connection can use up all memory.

Limits, which `tracer replay --no-limits` lifts together:

- A compressed file that expands to more than `EXPANDED_BYTES` and to more than `MOST_EXPANSION_RATIO` times its size is
  refused: captures of real traffic compress to a tenth, zeros in full packets to a hundredth; the same packet again and
  again to a thousandth.
- A compressed file that expands to more than `MOST_EXPANDED_BYTES` is refused.
- A host's capture is read until one partition holds `MOST_IN_PARTITION` packets of it. Partitions are made smaller
  first; packets that no number of partitions separates are one connection. Then the capture ends there, as if it had
  been stopped: a counter reports it, and because of its coverage no packet of other hosts counts as lost.
- Captures with more than `MOST_CONNECTIONS` connections or `MOST_EXCHANGES` exchanges are refused, as soon as so many
  are counted.

The last two are what `MEMORY_BYTES` hold. Where half of the memory that is available is more, they are as many times
higher (`limits_here`).

A partition's stages take 220 to 350 bytes a packet, of each host that saw it, on each core. A connection takes some 600
bytes where every one has another address (three million answered SYNs of as many addresses: 1,826 MiB;
`python -m benchmarks.floods`). An exchange takes 20 to 100 bytes until it is in a report (twelve million on a thousand
connections: 1,606 MiB), and 390 where its ledger is made anew for a recorded command
(`collector.reporting.new_ledgers`).
"""

from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from collector.capture_files.readers import CaptureReader
from collector.capture_files.records import Severity
from collector.execution import memory
from collector.trace.model import CounterInfo
from tracer.errors import InputError
from tracer.plain_text import plain

MOST_EXPANSION_RATIO = 200
EXPANDED_BYTES = 1 << 30
MOST_EXPANDED_BYTES = 1 << 37
MOST_IN_PARTITION = 1_500_000
LARGE_PARTITION = 1_000_000
"""Packets of all hosts; if a partition has more, partitions are processed one at a time."""
EXPANSION_REFUSED = "expansion_refused"
"""The counter of a file whose rest was not expanded (`tracer/core/wire/src/counters.rs`)."""
MOST_CONNECTIONS, MOST_EXCHANGES = 3_000_000, 4_500_000
"""Of all captures together: what 2 GiB hold, as measured (above)."""
BYTES_FOR_EACH = {"connections": 700, "requests": 400}
"""About what an analysis and its report take, beside some hundred MiB."""
PARTITION_CUT = "connection_cut"
"""The counter of a capture that was not read to its end."""
MEMORY_BYTES = 2 << 30
"""What an analysis within the limits may take, where they are as above."""
AVAILABLE_SHARE = 0.5
"""Of the memory that is available, this much may be taken: a viewer of the trace and other programs need some, too."""
LIFT = "if that is what it is meant to be, lift the limits with --no-limits"


class PartitionFull(Exception):
    """A partition holds too much of a host, and there may be more partitions. Never leaves
    `collector.decode.captures`."""


class InputLimits(Struct, frozen=True):
    """The limits explained in the module's header."""

    ratio: int = MOST_EXPANSION_RATIO
    expanded_bytes: int = EXPANDED_BYTES
    most_expanded_bytes: int = MOST_EXPANDED_BYTES
    in_partition: int = MOST_IN_PARTITION
    connections: int = MOST_CONNECTIONS
    exchanges: int = MOST_EXCHANGES
    memory_bytes: int = MEMORY_BYTES

    def of_memory(self, available_bytes: int, *, in_workers: bool = False) -> "InputLimits":
        """These limits where so much memory is available.

        Arguments: `in_workers`, whether partitions are processed elsewhere, in processes that may take `MEMORY_BYTES`.
        """
        times = max(1.0, AVAILABLE_SHARE * available_bytes / MEMORY_BYTES)
        return replace(
            self,
            in_partition=self.in_partition if in_workers else int(times * self.in_partition),
            connections=int(times * self.connections),
            exchanges=int(times * self.exchanges),
            memory_bytes=int(times * MEMORY_BYTES),
        )

    @property
    def expansion(self) -> tuple[int, int, int]:
        """The argument for `collector.capture_files.readers.open_capture`."""
        return self.expanded_bytes, self.ratio, self.most_expanded_bytes

    def check_expansion(self, path: Path, reader: CaptureReader) -> None:
        """Check a file that has been read. Raises: `InputError` if it expands to more than allowed."""
        if any(counter.name == EXPANSION_REFUSED for counter in reader.counters):
            times = reader.expanded_bytes // max(1, reader.bytes_read)
            what = f"{path} expands to {times:,} times its size ({reader.expanded_bytes >> 20:,} MiB so far)"
            raise InputError(what, f"captures of traffic do not; {LIFT}")

    def check_connections(self, count: int) -> None:
        """Check how many connections the captures have so far. Raises: `InputError` if they are too many."""
        self._check("connections", count, self.connections)

    def check_exchanges(self, count: int) -> None:
        """Check how many exchanges the captures have so far. Raises: `InputError` if they are too many."""
        self._check("requests", count, self.exchanges)

    def _check(self, what: str, count: int, most: int) -> None:
        if count > most:
            taken = f"{self.memory_bytes / (1 << 30):.1f}".removesuffix(".0")
            of = "" if self.memory_bytes == MEMORY_BYTES else ", half of what was free here"
            raise InputError(
                f"the captures hold more than {most:,} {what}, and their analysis may take more than {taken} GiB of "
                f"memory{of}",
                "analyse them period by period (`tracer replay --every 10m -o SERIES CAPTURES`), or lift the limits "
                f"with --no-limits: it takes about {BYTES_FOR_EACH[what]} bytes for each of the {what}",
            )


LIMITED = InputLimits()
UNLIMITED = InputLimits(*[1 << 62] * 7)


def limits_here(*, in_workers: bool = False) -> InputLimits:
    """`LIMITED` by the memory that is available on this machine; arguments as of `InputLimits.of_memory`."""
    return LIMITED.of_memory(memory.available_bytes() or 0, in_workers=in_workers)


def cut_counter(host: str, path: Path, frame: int, limit: int) -> CounterInfo:
    """The counter of a host whose capture was read only up to `frame` of the file."""
    remedy = (
        f"{plain(path.name)} was read up to frame {frame:,}: one connection has more than {limit:,} packets until "
        "there. For the rest analyse the captures period by period (`tracer replay --every 10m`), or lift the limit "
        "with --no-limits: it takes up to a kilobyte of memory a packet of that connection"
    )
    return CounterInfo(host, PARTITION_CUT, Severity.DATA_LOSS, 1, remedy)
