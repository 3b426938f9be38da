"""Decides what addresses are called, and which captured hosts are named by that.

Names are from hosts files of the operator and from the captures' Name Resolution Blocks, as Wireshark writes them. Of
several files that name an address:

- A hosts file comes before captures, an earlier one before a later one.
- Captures rank alike: they name an address only where they agree on one name. `web1` and `web1.example` agree.
- Every disagreement is counted, with the names, whichever is used.

A captured host is named so if only its file, or its address, names it otherwise: not if the operator named it
(`HOST=FILE`, a folder), nor if its agent did. Its own addresses must have one name in common. An address that several
captured hosts have (a virtual address) names none of them, and neither does a name that several hosts would get. Where
a capture does not show which packets its host sent, own addresses are inferred, and some may be missing (a balancer's
beside its virtual one): then every packet must have an end that is called so.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

from msgspec import Struct

from collector.capture_files.records import Severity
from collector.decode.hosts_files import NameSource, is_of_a_host
from collector.trace.model import AddressName, CounterInfo
from tracer.secret_rules import rules

NAMES_DISAGREE, HOST_UNNAMED, NAMES_LEFT_OUT = "names_disagree", "host_name_unclear", "names_left_out"
MOST_NAMES = 50_000
"""Addresses with names in a trace; more are left out."""
MOST_SHOWN = 3
"""At most so many disagreements are written out."""
Stated = list[tuple[str, tuple[str, ...]]]
"""Files that name an address, and what they call it."""


class HostToName(Struct, frozen=True):
    """A captured host, and whether something better than its file names it."""

    host: str
    addresses: frozenset[str]  # own ones
    is_guessed: bool  # its name is its file's or its address
    pairs: Collection[tuple[str, str]] = ()  # ends of its packets, if its own addresses are inferred from them


def choose_names(
    hosts_files: Sequence[NameSource], captures: Sequence[NameSource], addresses: Collection[str]
) -> tuple[tuple[AddressName, ...], list[CounterInfo]]:
    """The names of `addresses`, and what files disagree on. An address on whose name captures disagree has none."""
    secrets, found, unlike = rules(), list[AddressName](), list[str]()
    for address in sorted(filter(is_of_a_host, addresses)):
        given, read = (_statements(sources, address) for sources in (hosts_files, captures))
        stated = given + read
        if not stated:
            continue
        name, file = (given[0][1][0], given[0][0]) if given else _common_name(read)
        known = list(dict.fromkeys(each for _, names in stated for each in names))
        others = tuple(secrets.text(each) for each in known if each != name)
        found.append(AddressName(address, secrets.text(name), file, others))
        if not all(_agree(stated[0][1], names) for _, names in stated[1:]) or not name:
            unlike.append(f"{address} is {' and '.join(f'{names[0]} in {of}' for of, names in _unlike(stated))}")
    counters = [_disagreement(unlike, secrets.text(_some(unlike)))] if unlike else []
    if len(found) > MOST_NAMES:
        remedy = f"names are kept of {MOST_NAMES:,} addresses of a trace"
        counters.append(CounterInfo(None, NAMES_LEFT_OUT, str(Severity.NOTICE), len(found) - MOST_NAMES, remedy))
    return tuple(found[:MOST_NAMES]), counters


def choose_host_names(
    hosts: Sequence[HostToName], names: Sequence[AddressName]
) -> tuple[dict[int, str], list[CounterInfo]]:
    """By index, the names of hosts that have a better one than now; and why others with named addresses have none."""
    of_address = {each.address: (each.name, *each.others) for each in names if each.name}
    owners = Counter(address for host in hosts for address in host.addresses)
    wanted: dict[int, str] = {}
    unclear: list[str] = []
    for number, host in enumerate(hosts):
        if not host.is_guessed:
            continue
        mine = sorted(address for address in host.addresses if owners[address] == 1 and is_of_a_host(address))
        named = [of_address[address] for address in mine if address in of_address]
        if not named:
            continue
        common = _in_common(named)
        strange = [pair for pair in host.pairs if not _has_end_of(common, pair, of_address)] if common else []
        if common and not strange:
            wanted[number] = common
        elif strange:
            unclear.append(f"{host.host} may be {common}, but has packets between {' and '.join(strange[0])}")
        else:
            listed = listing_of(f"{address} {of_address.get(address, ('without a name',))[0]}" for address in mine)
            unclear.append(f"{host.host} has {listed}")
    changed = {number: name for number, name in wanted.items() if name != hosts[number].host}
    for number, name in _clashes(hosts, changed):
        unclear.append(f"{hosts[number].host} would be a second {name}")
        del changed[number]
    return changed, [_unclear(unclear)] if unclear else []


def _has_end_of(name: str, pair: tuple[str, str], of_address: Mapping[str, Sequence[str]]) -> bool:
    return any(_agree((name,), of_address.get(end, ())) for end in pair)


def listing_of(words: Iterator[str]) -> str:
    """`a, b and c`."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def _clashes(hosts: Sequence[HostToName], wanted: Mapping[int, str]) -> list[tuple[int, str]]:
    """Those of `wanted` that another host has, or would get, too."""
    left = dict(wanted)
    while True:
        by_name = defaultdict[str, list[int]](list)
        for number, host in enumerate(hosts):
            by_name[left.get(number, host.host).casefold()].append(number)
        clash = [number for numbers in by_name.values() if len(numbers) > 1 for number in numbers if number in left]
        if not clash:
            return [(number, name) for number, name in wanted.items() if number not in left]
        for number in clash:
            del left[number]


def _statements(sources: Sequence[NameSource], address: str) -> Stated:
    return [(source.file, source.names[address]) for source in sources if address in source.names]


def _common_name(stated: Stated) -> tuple[str, str]:
    """The first name on which all files agree, and the file that has it; none if they do not agree."""
    return _in_common([names for _, names in stated]), stated[0][0]


def _in_common(of_all: Sequence[Sequence[str]]) -> str:
    """The first of the first names that all others have, too; if there is none, one that they have with or without its
    domain; else nothing."""
    first, *others = of_all
    exact = (name for name in first if all(name in names for names in others))
    alike = (name for name in first if all(_agree((name,), names) for names in others))
    return next(exact, "") or next(alike, "")


def _agree(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether two files have a name in common, with its domain or without."""
    return any(_is_alike(mine.casefold(), theirs.casefold()) for mine in one for theirs in other)


def _is_alike(one: str, other: str) -> bool:
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")


def _unlike(stated: Stated) -> Stated:
    """The first file, and those that disagree with it."""
    first = stated[0]
    others = [each for each in stated[1:] if not _agree(first[1], each[1])]
    return [first, *(others or stated[1:])]


def _disagreement(unlike: Sequence[str], shown: str) -> CounterInfo:
    remedy = f"{shown}; a hosts file comes before captures, and names that captures disagree on are not used"
    return CounterInfo(None, NAMES_DISAGREE, str(Severity.NOTICE), len(unlike), remedy)


def _unclear(unclear: Sequence[str]) -> CounterInfo:
    remedy = f"names of addresses give no name for one host: {_some(unclear)}; the present names stay, or say HOST=FILE"
    return CounterInfo(None, HOST_UNNAMED, str(Severity.NOTICE), len(unclear), remedy)


def _some(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - MOST_SHOWN} more" if len(texts) > MOST_SHOWN else ""
    return "; ".join(texts[:MOST_SHOWN]) + more
