"""Determines which host each capture belongs to: by the given names, then by the contents of the captures.

1. `sources_by_name`: files that name the same host belong to it.
2. `sources_by_interface`, `sources_by_address`: a file whose interfaces are several hosts is split.
3. `sources_by_host`: captures of one name that show several hosts stay separate; one that is given twice is used once.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from collector.capture_files.readers import open_capture
from collector.decode import capture_sets, merged_captures
from collector.decode.host_addresses import own_addresses
from collector.decode.host_capture import HostCapture, HostSource
from collector.trace.model import CounterInfo
from tracer.plain_text import plain


def sources_by_interface(
    named: Sequence[HostSource], merged: Sequence[int], captures: Sequence[HostCapture]
) -> list[tuple[HostSource, int]]:
    """The sources, with each one at an index in `merged` replaced by one for each of its interfaces; all with the index
    that they had.

    The first interface keeps its file's position, together with those that captured nothing; the others are appended.
    """
    apart = list(zip(named, range(len(named)), strict=True))
    for place in merged:
        capture = captures[place]
        numbers = [number for number, _, _ in capture.activity.interfaces]
        silent = set(range(len(capture.interfaces))) - set(numbers)
        sources = [
            replace(named[place], host=f"{capture.host}-{capture.interfaces[number]}", interfaces=frozenset({number}))
            for number in numbers
        ]
        apart[place] = (replace(sources[0], interfaces=frozenset({numbers[0], *silent})), place)
        apart += [(source, place) for source in sources[1:]]
    return apart


def sources_by_address(
    named: Sequence[HostSource],
    apart: Sequence[tuple[HostSource, int]],
    captures: Sequence[HostCapture],
    texts: Sequence[str],
) -> tuple[list[HostSource], list[CounterInfo]]:
    """`apart`, named by addresses, with interfaces that share an address merged; and counters that report it."""
    own = own_addresses([capture.traffic() for capture in captures], merged_captures.LEAST_ROUND_NS)
    taken = {source.host for source in named}
    found: list[tuple[HostSource, int]] = list(apart[: len(named)])
    split: dict[int, dict[int, frozenset[int]]] = {}
    for number, (source, place) in enumerate(apart):
        if source.interfaces is None:
            continue
        mine = own[number] or own_addresses([captures[number].traffic()])[0]
        known = split.setdefault(place, {})
        same = next((other for other, addresses in known.items() if addresses & mine), None)
        if same is not None:
            before = found[same][0]
            assert before.interfaces is not None, "of a file that is split"
            found[same] = (replace(before, interfaces=before.interfaces | source.interfaces), place)
            continue
        name = min((texts[address] for address in mine), default=source.host)
        host = source.host if name in taken else name
        taken.add(host)
        at = place if number < len(named) else len(found)
        found[at:] = [(replace(source, host=host, is_guessed=True), place), *found[at + 1 :]]
        known[at] = mine
    counters = [
        merged_captures.split_counter(str(named[place].host), [str(found[at][0].host) for at in known])
        for place, known in split.items()
    ]
    return [source for source, _ in found], counters


def sources_by_host(
    named: Sequence[HostSource], alike: Mapping[str, Sequence[int]], captures: Sequence[HostCapture]
) -> tuple[list[HostSource], list[CounterInfo]]:
    """The hosts that the captures belong to by their contents; and counters that report it.

    Arguments: `alike`, for each name of several sources, their indices.
    """
    counters, merged, left_out = [], dict[int, int](), set[int]()
    traffic = [capture.traffic() for capture in captures]
    for place, first in enumerate(capture_sets.first_of_same([capture.notes for capture in captures])):
        if first != place:
            left_out.add(place)
            capture = captures[place]
            counters.append(capture_sets.same_capture(capture.host, captures[first].host, capture.packets_count))
    for name, places in alike.items():
        there = [place for place in places if place not in left_out]
        if len(there) < 2:
            continue
        several = capture_sets.are_several_hosts(traffic, there)
        counters.append(capture_sets.same_name(name, [str(named[place].host) for place in there], several))
        merged |= {} if several else dict.fromkeys(there[1:], there[0])
    hosts = []
    for place, source in enumerate(named):
        if place in left_out or place in merged:
            continue
        more = [file for other, into in merged.items() if into == place for file in named[other].files]
        hosts.append(replace(source, files=(*source.files, *more)))
    return hosts, counters


def sources_by_name(
    sources: Iterable[HostSource],
) -> tuple[list[HostSource], dict[str, list[int]], dict[str, int]]:
    """Sources that name the same host are one host, with its files in the given order. Hosts are sorted by name, so
    that no decision depends on the order of arguments; the third result has the given order.

    A file's stem, or a folder's name, identifies a host within one folder. From several folders, each gets its own name
    (`web`, `web-2`), and the second result has their indices by stem: whether they are one host is decided when they
    are read.
    """
    files: dict[tuple[str, Path | None], tuple[Path, ...]] = {}
    is_said: set[tuple[str, Path | None]] = set()
    given = {source.host for source in sources if not source.folder}
    for source in sources:
        said = source.host or _host_said_in(source.files[0])
        folder = source.folder.resolve() if source.folder and source.host not in given else None
        key = (said, folder) if said else (source.files[0].name.split(".", 1)[0], source.files[0].parent.resolve())
        key = (plain(key[0]), key[1])
        is_said |= {key} if said else set()
        files[key] = files.get(key, ()) + source.files
    named: list[HostSource] = []
    places: dict[str, list[int]] = {}
    taken = {name for name, _ in files}
    ranks: dict[str, int] = {}
    rank_of = {key: rank for rank, key in enumerate(files)}
    for key, of_host in sorted(files.items(), key=lambda each: each[0][0]):
        name = key[0]
        earlier = places.setdefault(name, [])
        earlier.append(len(named))
        own_name = name
        for number in itertools.count(2):
            if len(earlier) == 1 or own_name not in taken:
                break
            own_name = f"{name}-{number}"
        taken.add(own_name)
        ranks[own_name] = rank_of[key]
        named.append(HostSource(own_name, of_host, is_guessed=key not in is_said))
    return named, {name: of_name for name, of_name in places.items() if len(of_name) > 1}, ranks


def _host_said_in(path: Path) -> str | None:
    """The host that the agent recorded in its capture."""
    with open_capture(path) as reader:
        next(iter(reader.rows()), None)
        return reader.host
