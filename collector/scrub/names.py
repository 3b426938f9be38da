"""What stands for each name, address and word of a trace: the same everywhere, and nothing of the original.

A word is a run of letters, digits and underscores in a path, an id, a statement, the name of a process. It is replaced
by `w1`, `w2`, … in the order in which they are seen; one of digits alone by a number, so that a path keeps its shape.
Words that a protocol defines are kept (`KEPT_WORDS`), since they say what a request is and nothing about whose it is.

A sentence (a finding, an evidence) is written by this product around names of the trace: in it every name, address and
word that was replaced elsewhere is replaced as there, but for short numbers, which are counts, and for the names of
known software.

What stands for something is never itself in the trace: addresses are of the ranges for benchmarks and documentation
(RFC 2544, RFC 3849), and whatever occurs is passed over.
"""

import ipaddress
import itertools
import re
from collections.abc import Iterator, Mapping
from functools import cache

from msgspec import Struct, field

from collector.services.services import products

_WORD = re.compile(r"\w+")
_ADDRESS = r"(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){2,7})"
_ADDRESSES = re.compile(rf"(?<![\w.:]){_ADDRESS}(?![\w.]*\w)")
_METHOD = re.compile(r"[A-Z][A-Z_]{0,23}")
_INTERFACE = re.compile(r"(?:eth|en|lo|wl|bond|br|veth|docker|cni|flannel|vlan|tun|tap|any|ib)[\w.@-]{0,12}")
_DISK = re.compile(r"(?:sd|hd|vd|xvd|nvme|mmcblk|dm-|md|loop|ram|sr|zram)\w{0,12}")
_PORT_ALONE = re.compile(r"port \d{1,5}")
"""What a service is called of which no more is known."""
_OF_PORT = re.compile(r"(?P<host>.+):(?P<port>\d{1,5})")
LEAST_DIGITS = 6
"""A number of fewer digits in a sentence may be a count, and stays."""
LEAST_LETTERS = 3
"""Shorter words are words of any language, too: where they are left cannot be seen."""
KEPT_WORDS = frozenset(
    [
        *("v1", "v2", "v3", "http", "https", "h2", "h3", "0", "1", "auth", "info", "healthcheck", "endpoints"),
        *("format", "json", "xml", "limit", "marker", "prefix", "delimiter", "list", "type", "uploads", "uploadid"),
        *("partnumber", "versionid", "acl", "policy", "location", "versioning", "lifecycle", "max", "keys"),
        *("select", "insert", "update", "delete", "from", "where", "and", "or", "not", "in", "is", "null", "values"),
        *("set", "into", "join", "left", "right", "inner", "outer", "on", "group", "by", "order", "having", "offset"),
        *("as", "distinct", "count", "sum", "min", "avg", "begin", "commit", "rollback", "create", "table", "index"),
        *("drop", "alter"),
    ]
)


class Names(Struct):
    """The replacements of one trace; they are made as names are first seen.

    Arguments: `taken`, all words and addresses that occur in the trace, which therefore stand for nothing.
    """

    taken: frozenset[str] = frozenset()
    hosts: dict[str, str] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    numbers: dict[str, str] = field(default_factory=dict)
    _in_sentences: re.Pattern[str] | None = None

    def host(self, name: str) -> str:
        """What stands for a host; a host may be named by its address."""
        return self.address(name) if is_address(name) else self._replace(self.hosts, name, "host{}")

    def address(self, address: str) -> str:
        """What stands for an address; loopback stays."""
        if not is_address(address):
            return self.host(address)
        known = ipaddress.ip_address(address)
        if known.is_loopback or known.is_unspecified:
            return address
        if address not in self.addresses:
            network = ipaddress.ip_network("198.18.0.0/15" if known.version == 4 else "2001:db8::/32")
            made = (str(network[number]) for number in itertools.count(len(self.addresses) + 1))
            in_use = {*self.taken, *self.addresses.values()}
            self.addresses[address] = next(each for each in made if each not in in_use)
        return self.addresses[address]

    def file(self, path: str, made: str) -> str:
        """Note what stands for a file, by its path and by its name alone."""
        for name in (path, path.rpartition("/")[2]):
            self.files.setdefault(name, made)
        return made

    def point(self, point: str) -> str:
        """What stands for `HOST/INTERFACE`."""
        host, slash, interface = point.rpartition("/")
        if not slash:
            return self.host(point)
        return f"{self.host(host)}/{self.interface(interface)}"

    def interface(self, name: str) -> str:
        """What stands for an interface: a usual name stays."""
        return name if _INTERFACE.fullmatch(name) else self.text(name)

    def metric(self, metric: str) -> str:
        """What stands for a metric, whose last part may name a disk or an interface."""
        what, dot, device = metric.partition(".")
        is_usual = _INTERFACE.fullmatch(device) or _DISK.fullmatch(device)
        return f"{what}{dot}{device if is_usual else self.text(device)}"

    def service(self, name: str) -> str:
        """What stands for the name of a service: known software keeps its own."""
        if name in known_services() or _PORT_ALONE.fullmatch(name):
            return name
        of_port = _OF_PORT.fullmatch(name)
        if of_port is None:
            return self.host(name) if name in self.hosts else self.text(name)
        host = of_port["host"]
        shown = self.host(host) if host in self.hosts or is_address(host) else self.text(host)
        return f"{shown}:{of_port['port']}"

    def method(self, method: str) -> str:
        """What stands for a method or a command: one in capitals stays."""
        return method if _METHOD.fullmatch(method) else self.text(method)

    def text(self, text: str) -> str:
        """A path, an id, a statement, with each word replaced."""
        return _WORD.sub(lambda found: self._word(found[0]), text)

    def left_out(self, _text: str) -> str:
        """What stands for the words of others, whose words are those of any language: nothing."""
        return ""

    def sentence(self, sentence: str) -> str:
        """A sentence with all that was replaced elsewhere replaced as there. To be asked when all names are known."""
        return self._pattern().sub(lambda found: self._in_sentence(found[0]), sentence)

    def left_in(self, text: str) -> str | None:
        """A name, an address or a word of a text that was to be replaced; None if there is none."""
        if _PORT_ALONE.fullmatch(text):
            return None
        return next((found[0] for found in self._pattern().finditer(text) if self._is_original(found[0])), None)

    def originals_count(self) -> int:
        """How many of all that was replaced `left_in` looks for."""
        looked_for = (word for kind in (self.words, self.numbers) for word in kind if self._is_original(word))
        return len(self.hosts) + len(self.addresses) + len(self.files) + sum(1 for _ in looked_for)

    def _word(self, word: str) -> str:
        if word.lower() in KEPT_WORDS:
            return word
        if word.isdecimal():
            return self.numbers.setdefault(word, str(len(self.numbers) + 1))
        return self._replace(self.words, word, "w{}")

    def _replace(self, kind: dict[str, str], name: str, form: str) -> str:
        """What stands for a name of a kind: the next number in this form that is not taken."""
        if name not in kind:
            last = int(re.sub(r"\D", "", next(reversed(kind.values()), "0")))
            made = (form.format(number) for number in itertools.count(last + 1))
            kind[name] = next(each for each in made if each not in self.taken)
        return kind[name]

    def _pattern(self) -> re.Pattern[str]:
        """Files, hosts, addresses and known software, each as a whole and the longest first; then any word."""
        if self._in_sentences is None:
            known = {*self.files, *self.hosts, *self.addresses, *known_services()} - {""}
            names = "|".join(map(re.escape, sorted(known, key=lambda name: (-len(name), name))))
            self._in_sentences = re.compile(rf"(?<![\w.-])(?:{names})(?![\w-])|{_ADDRESSES.pattern}|\w+")
        return self._in_sentences

    def _in_sentence(self, name: str) -> str:
        for kind in (self.files, self.hosts, self.addresses):
            if name in kind:
                return kind[name]
        if name in known_services():
            return name
        if is_address(name) and not name.isdecimal():
            return self.address(name)
        if name in self.words:
            return self.words[name]
        return self.numbers[name] if len(name) >= LEAST_DIGITS and name in self.numbers else name

    def _is_original(self, name: str) -> bool:
        if name in known_services():
            return False
        if name in self.hosts or name in self.addresses or name in self.files:
            return True
        least, kind = (LEAST_DIGITS, self.numbers) if name.isdecimal() else (LEAST_LETTERS, self.words)
        return name in kind and len(name) >= least


def words_of(text: str) -> Iterator[str]:
    """The words of a text, and its addresses."""
    yield from _WORD.findall(text)
    yield from _ADDRESSES.findall(text)


@cache
def known_services() -> frozenset[str]:
    """The names of services that this product knows by themselves."""
    return frozenset(product.name for product in products())


def is_address(text: str) -> bool:
    """Whether a text is an IP address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def key_of(names: Names) -> Mapping[str, Mapping[str, str]]:
    """What stands for what, by kind, for whoever may know it."""
    return {
        "hosts": names.hosts,
        "addresses": names.addresses,
        "files": names.files,
        "words": names.words,
        "numbers": names.numbers,
    }
