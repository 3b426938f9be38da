"""Settings of an analysis."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, field

from collector.annotations.log_options import LogOptions
from collector.capture_files.readers import TlsKeys
from collector.decode.carried import NOTHING_CARRIED, Carried
from collector.decode.hosts_files import NameSource
from collector.decode.input_limits import LIMITED, InputLimits
from collector.decode.time_range import TimeRange
from collector.findings.thresholds import DEFAULTS, Thresholds
from collector.requests.sections import Cuts
from collector.services.rings import Ring
from collector.trace.model import CounterInfo

if TYPE_CHECKING:
    from collector.annotations.records import Record


class AnalysisOptions(Struct, frozen=True):
    """Settings of an analysis."""

    align_clocks: bool = True
    """If false, no clock is corrected; then delays may be negative."""
    workers: int | None = None
    """Partitions processed in parallel; None for one on each core."""
    partition_bits: int | None = None
    """2^n partitions; None to choose by the captures' sizes."""
    edge_ns: int = 0
    """An unmatched packet closer to an edge of a host's capture is `outside_window`, not lost."""
    addresses: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Addresses by host, where a capture alone does not show them."""
    rings: tuple[Ring, ...] = ()
    """Ring files, if given: they assign partitions to the devices of a store."""
    counters: tuple[CounterInfo, ...] = ()
    """Counters of events before the analysis, for example during the transfer of captures."""
    cuts: Cuts = Cuts()
    """Where a long trace is cut, to link requests section by section."""
    limits: InputLimits = LIMITED
    """Limits of the input."""
    names: tuple[tuple[str, str], ...] = ()
    """The operator's names of servers: `HOST:PORT` and the name."""
    hosts_files: tuple[NameSource, ...] = ()
    """What the operator's hosts files call addresses."""
    thresholds: Thresholds = DEFAULTS
    """By which findings are judged."""
    keys: TlsKeys = field(default_factory=TlsKeys)
    """Secrets that open connections of TLS. They are in no table, and nothing shows them."""
    file_names: Mapping[str, str] = field(default_factory=dict)
    """What the trace calls files, by their paths: the URLs of those that were fetched; others by their paths."""
    wanted: TimeRange | None = None
    """The time to analyse, by each host's clock; None for all of it."""
    period: TimeRange | None = None
    """The trace is to hold the requests that began within [from, to) (`collector.analysis.period`); None for all."""
    carried: Carried = NOTHING_CARRIED
    """What is known of connections from before the packets that are read."""
    logs: LogOptions = field(default_factory=LogOptions)
    """Logs of the captured hosts."""
    spans: tuple[str, ...] = ()
    """Files of spans of other tracers: FILE, or HOST=FILE."""
    records: tuple["Record", ...] = ()
    """What logs and other tracers say, once they have been read."""
