"""All thresholds by which findings are judged, each with default, unit and reason; and values that an operator sets.

Every group is declared in the module that judges by it, and named after it. An operator sets values in a TOML file
(`--thresholds FILE`), a table for each group:

    [pace]
    late_ratio = 3.0

They change what is reported and how severely, never a time, an outcome or the ledger. `trace.json` records the values
that differ from the defaults. `python -m collector.findings.thresholds` prints the table of docs/thresholds.md.
"""

import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from collector.findings.background import BackgroundThresholds
from collector.findings.causes import CauseThresholds
from collector.findings.clocks import ClockThresholds
from collector.findings.endings import EndingThresholds
from collector.findings.finding import SeverityThresholds, listing
from collector.findings.network import NetworkThresholds
from collector.findings.pace import PaceThresholds
from collector.findings.placement import PlacementThresholds
from collector.findings.ports import PortThresholds
from collector.findings.scans import ScanThresholds
from collector.findings.silent_servers import AnswerThresholds
from collector.findings.stalls import StallThresholds
from collector.findings.symptoms import RequestThresholds, SymptomThresholds
from collector.findings.usage import UsageThresholds
from collector.hops.failed_connections import HandshakeThresholds
from collector.hops.host_drops import HostDropThresholds
from collector.hops.recoveries import RecoveryThresholds
from collector.hops.sender_pauses import PauseThresholds
from collector.requests.head_of_line import HeadOfLineThresholds
from collector.trace.model import ThresholdInfo
from tracer.errors import InputError


class Declared(Struct, frozen=True):
    """A threshold as its module declares it."""

    group: str
    name: str
    default: float
    reason: str

    @property
    def range(self) -> tuple[str, float, float]:
        """Its unit, and the least and the largest possible value."""
        return UNITS[self.name.rpartition("_")[2]]

    def parse(self, path: Path, value: Any) -> float:
        """A value of an operator's file, with the type of the default. Raises: `InputError` if it is impossible."""
        unit, least, most = self.range
        whole = isinstance(self.default, int)
        is_number = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
        if not is_number or not least <= value <= most:
            what = f"{'a whole number' if whole else 'a number'} from {least:,} to {most:,} ({unit})"
            raise InputError(f"{path}: {self.group}.{self.name} = {value!r} is not {what}", REMEDY)
        return type(self.default)(value)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """All thresholds, by group."""

    severity: SeverityThresholds = field(default_factory=SeverityThresholds)
    causes: CauseThresholds = field(default_factory=CauseThresholds)
    network: NetworkThresholds = field(default_factory=NetworkThresholds)
    host_drops: HostDropThresholds = field(default_factory=HostDropThresholds)
    handshakes: HandshakeThresholds = field(default_factory=HandshakeThresholds)
    connections: ScanThresholds = field(default_factory=ScanThresholds)
    ports: PortThresholds = field(default_factory=PortThresholds)
    pauses: PauseThresholds = field(default_factory=PauseThresholds)
    recoveries: RecoveryThresholds = field(default_factory=RecoveryThresholds)
    head_of_line: HeadOfLineThresholds = field(default_factory=HeadOfLineThresholds)
    stalls: StallThresholds = field(default_factory=StallThresholds)
    requests: RequestThresholds = field(default_factory=RequestThresholds)
    answers: AnswerThresholds = field(default_factory=AnswerThresholds)
    endings: EndingThresholds = field(default_factory=EndingThresholds)
    pace: PaceThresholds = field(default_factory=PaceThresholds)
    placement: PlacementThresholds = field(default_factory=PlacementThresholds)
    background: BackgroundThresholds = field(default_factory=BackgroundThresholds)
    usage: UsageThresholds = field(default_factory=UsageThresholds)
    clocks: ClockThresholds = field(default_factory=ClockThresholds)

    @property
    def of_symptoms(self) -> SymptomThresholds:
        """Those by which symptoms are counted, a partition at a time."""
        return SymptomThresholds(**{each.name: getattr(self, each.name) for each in fields(SymptomThresholds)})

    def changes(self) -> tuple[ThresholdInfo, ...]:
        """The values that differ from the defaults."""
        values = ((each, getattr(getattr(self, each.group), each.name)) for each in all_thresholds())
        return tuple(
            ThresholdInfo(f"{each.group}.{each.name}", value, each.default)
            for each, value in values
            if value != each.default
        )


DEFAULTS = Thresholds()

YEAR_NS = 366 * 86_400 * 10**9
UNITS: dict[str, tuple[str, float, float]] = {
    "ns": ("ns", 0, YEAR_NS),
    "bytes": ("bytes", 0, 1 << 40),
    "count": ("count", 1, 10**9),
    "ppb": ("parts per billion", 0, 10**9),
    "percent": ("percent", 0, 100),
    "share": ("share, 0 to 1", 0, 1),
    "quantile": ("quantile, 0 to 1", 0, 1),
    "ratio": ("ratio", 1, 10**6),
    "sigmas": ("standard deviations", 0, 100),
}
"""By the last word of a threshold's name: its unit, and the least and the largest possible value."""
REMEDY = "docs/thresholds.md lists all thresholds, with their units; mend the file, or leave out --thresholds"


def all_thresholds() -> Iterator[Declared]:
    """All thresholds, by group."""
    for group in fields(Thresholds):
        for each in fields(getattr(DEFAULTS, group.name)):
            yield Declared(group.name, each.name, cast("float", each.default), each.metadata["reason"])


def read_thresholds(path: Path) -> Thresholds:
    """The defaults with the values of an operator's file.

    Raises: `InputError` for a file that cannot be read, an unknown name or an impossible value.
    """
    thresholds = _with_values((each, each.parse(path, value)) for each, value in _entries(path))
    if thresholds.pauses.delayed_ack_least_ns > thresholds.pauses.delayed_ack_most_ns:
        raise InputError(f"{path}: pauses.delayed_ack_least_ns is more than pauses.delayed_ack_most_ns", REMEDY)
    return thresholds


def _entries(path: Path) -> Iterator[tuple[Declared, Any]]:
    """The thresholds that a file sets, and their values. Raises: `InputError` for an unknown one."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}", REMEDY) from None
    known = {(each.group, each.name): each for each in all_thresholds()}
    for group, table in document.items():
        if not isinstance(table, dict) or group not in {group for group, _ in known}:
            raise InputError(f"{path}: there is no group of thresholds [{group}]", REMEDY)
        for name, value in table.items():
            if (group, name) not in known:
                raise InputError(f"{path}: [{group}] has no threshold {name}", REMEDY)
            yield known[group, name], value


def _with_values(values: Iterable[tuple[Declared, float]]) -> Thresholds:
    """The defaults with other values."""
    thresholds = DEFAULTS
    for each, value in values:
        group = replace(getattr(thresholds, each.group), **{each.name: value})
        thresholds = replace(thresholds, **{each.group: group})
    return thresholds


def changes_words(changes: Sequence[ThresholdInfo]) -> str:
    """`judged with pace.late_ratio 3 (default 2)`: a clause for reports; "" without changes."""
    words = [f"{change.name} {_number(change.value)} (default {_number(change.default)})" for change in changes]
    return f"judged with {listing(words)}" if words else ""


def thresholds_of(changes: Sequence[ThresholdInfo]) -> Thresholds:
    """The thresholds of a trace, from the changes that its `trace.json` records; names unknown today are omitted."""
    changed = {change.name: change.value for change in changes}
    names = ((each, f"{each.group}.{each.name}") for each in all_thresholds())
    return _with_values((each, changed[name]) for each, name in names if name in changed)


def table_lines() -> Iterator[str]:
    """The table of docs/thresholds.md, in Markdown."""
    yield "| group | threshold | default | unit | why |"
    yield "|---|---|--:|---|---|"
    last = ""
    for each in all_thresholds():
        group = "" if each.group == last else f" `[{each.group}]`"
        yield f"|{group} | `{each.name}` | {_number(each.default)} | {each.range[0]} | {each.reason} |"
        last = each.group


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}"


if __name__ == "__main__":
    print("\n".join(table_lines()))
