"""What ends of connections without a capture are called: the tables hold their addresses, `trace.json` their names."""

import re
from collections import Counter
from collections.abc import Mapping

from collector.trace.model import TraceInfo

_V4, _V6 = r"\d{1,3}(?:\.\d{1,3}){3}", r"[0-9a-f]{0,4}(?::[0-9a-f]{0,4}){2,7}"
_IN_TEXT = re.compile(rf"\[({_V6})\]|(?<![\w.:/=-])(?:({_V4})(?![\w-]|\.\w)|({_V6})(?![\w:-]|\.\w))")
"""An address in a sentence, also before a port; none in a path, a longer word or an option's value."""


class PeerNames:
    """The names of a trace's addresses that are of no captured host, or of several."""

    def __init__(self, info: TraceInfo) -> None:
        owners = Counter(address for host in info.hosts for address in host.addresses)
        self._own = {address: host.host for host in info.hosts for address in host.addresses if owners[address] == 1}
        self._names = {each.address: each.name for each in info.names if each.name and each.address not in self._own}
        called = (*self._names.values(), *(host.host for host in info.hosts))
        self._uses = Counter(name.casefold() for name in called)

    def __bool__(self) -> bool:
        return bool(self._names)

    def of(self, address: str | None) -> str | None:
        """The name of an address."""
        return self._names.get(address) if address else None

    def by_address(self) -> Mapping[str, str]:
        """All of them."""
        return self._names

    def of_one(self, address: str | None) -> str | None:
        """The name of an address, if it is of no other address and of no captured host: it names one end."""
        name = self.of(address)
        return name if name and self._uses[name.casefold()] == 1 else None

    def in_text(self, text: str) -> str:
        """A sentence with names in place of addresses, as `of_one`."""
        if not self._names:
            return text
        return _IN_TEXT.sub(lambda found: self.of_one(found[1] or found[2] or found[3]) or found[0], text)

    def of_all(self) -> Mapping[str, str]:
        """The same with the names of captured hosts."""
        return self._own | self._names
