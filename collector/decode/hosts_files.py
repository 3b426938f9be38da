"""Reads hosts files, as the operator has them: an address, its name, further names, `#` and a comment (hosts(5)).

The first name of an address is the one that it is shown by, as in `getent hosts`; others are kept as further names.
Later lines of an address add names. UTF-8, or UTF-16 with a byte order mark as Windows writes it; any ends of lines.

Left out without a word: what names no host of a network, such as loopback, `0.0.0.0` of blocklists, multicast, and an
address with a zone (`fe80::1%lo0`), whose link only the file's own machine knows. A line that is no address with a name
is counted.
"""

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from collector.capture_files.records import Severity
from collector.trace.model import CounterInfo
from tracer.errors import InputError
from tracer.plain_text import plain

NAMES_UNREAD = "names_unread"
MOST_BYTES = 32 << 20
"""Of a hosts file: one full of addresses takes 9 s of CPU time and 500 MiB, a blocklist of 150,000 lines 0.4 s."""
LOOPBACK, MULTICAST = 127, range(224, 240)
"""First bytes of IPv4 addresses (RFC 1122 §3.2.1.3, RFC 5771)."""
LONGEST_NAME = 253
"""Characters of a domain name (RFC 1035 §2.3.4, without the root's dot)."""
_NAME = re.compile(r"\w(?:[\w.-]*\w)?")
_NO_HOSTS = re.compile(
    r"(?:ip6-)?(?:localhost|loopback|localnet|mcastprefix|all(?:nodes|routers|hosts)|broadcasthost)\d?(?:\.local\w*)?"
)
"""Names that any machine has for itself or for all."""
_V4 = re.compile(r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(?:\.(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)){3}", re.ASCII)
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


class NameSource(Struct, frozen=True):
    """What one file says: by address its names, the first one first."""

    file: str
    names: Mapping[str, tuple[str, ...]]


def read_hosts_files(paths: Sequence[Path]) -> tuple[tuple[NameSource, ...], tuple[CounterInfo, ...]]:
    """What hosts files say, in the order given, and what of them could not be read.

    Raises: `InputError` for a file that cannot be read, is too long, or has no line with an address.
    """
    sources, counters = [], []
    for path in paths:
        source, counter = _read(path)
        sources.append(source)
        counters += counter
    return tuple(sources), tuple(counters)


def usable_name(text: str) -> str | None:
    """A name of a host as it is kept: without the root's dot; None for one that is none, or names no one host."""
    name = text.removesuffix(".")
    if len(name) > LONGEST_NAME or not _NAME.fullmatch(name) or _NO_HOSTS.fullmatch(name.lower()):
        return None
    return None if _V4.fullmatch(name) else name


def is_of_a_host(address: str) -> bool:
    """Whether an address (text, without a zone) may be a host's in a network."""
    known = _canonical(address)
    if known is None or ":" in known:
        return known is not None and not known.startswith("ff") and known not in ("::", "::1")
    first = int(known.partition(".")[0])
    return first != LOOPBACK and first not in MULTICAST and known not in ("0.0.0.0", "255.255.255.255")


def _read(path: Path) -> tuple[NameSource, list[CounterInfo]]:
    file, found, unread = plain(path.name), dict[str, tuple[str, ...]](), list[int]()
    is_hosts_file = False
    for number, words in _lines(path):
        address, _, zone = words[0].partition("%")
        known = _canonical(address)
        is_hosts_file |= known is not None
        if known is None:
            unread.append(number)
        elif not zone and is_of_a_host(known):
            names = {word: usable_name(word) for word in words[1:]}
            found[known] = tuple(dict.fromkeys((*found.get(known, ()), *filter(None, names.values()))))
            if not names or any(name is None and not _names_no_one(word) for word, name in names.items()):
                unread.append(number)
    if not is_hosts_file:
        raise InputError(
            f"{path} is no hosts file: no line begins with an address", "give lines such as: 10.0.0.5 web1"
        )
    source = NameSource(file, {address: names for address, names in found.items() if names})
    if not unread:
        return source, []
    remedy = f"line {unread[0]} of {file} is no address with a name; write it as: 10.0.0.5 web1 (in UTF-8)"
    return source, [CounterInfo(None, NAMES_UNREAD, str(Severity.NOTICE), len(unread), remedy)]


def _names_no_one(word: str) -> bool:
    return bool(_NO_HOSTS.fullmatch(word.lower()))


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The words of each line that has some, with its number. Raises: `InputError` if the file cannot be read."""
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"--hosts-file {path} cannot be read: {error.strerror}", "check the name") from None
    if len(data) > MOST_BYTES:
        raise InputError(f"{path} is longer than {MOST_BYTES >> 20} MiB", "give the lines of the hosts that are in it")
    encoding = "utf-16" if data.startswith(_UTF_16) else "utf-8-sig"
    text = data.decode(encoding, "replace")
    for number, line in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        if words := line.partition("#")[0].split():
            yield number, words


def _canonical(text: str) -> str | None:
    """An address as captures write it; None for what is none."""
    if _V4.fullmatch(text):
        return text
    try:
        return str(ipaddress.IPv6Address(text))
    except ValueError:
        return None
