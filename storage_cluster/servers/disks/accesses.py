"""A reserved access, as it goes with a request from the gateway to the storage servers.

    X-Backend-Access: ID END_S HOST/DEVICE=BYTES_PER_S,HOST/DEVICE=BYTES_PER_S

The gateway has checked whose it is and for what; a storage server reads only what is reserved on the device that the
request names, and until when. A device that is not in the list has nothing reserved for it.
"""

import dataclasses
import re
from collections.abc import Mapping

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NUMBER = re.compile(r"[0-9]{1,15}")


@dataclasses.dataclass(frozen=True)
class Access:
    """What is reserved for the requests of one reservation."""

    id: str
    end_s: int  # of the wall clock
    rates: Mapping[str, int]  # HOST/DEVICE to bytes per second

    def rate(self, host: str, device: str) -> int:
        """What is reserved on a device, bytes per second; 0: nothing."""
        return self.rates.get(f"{host}/{device}", 0)

    def text(self) -> str:
        """The header's value."""
        listed = ",".join(f"{place}={rate}" for place, rate in sorted(self.rates.items()))
        return f"{self.id} {self.end_s} {listed}"


def parse_access(text: str) -> Access | None:
    """The access in a header's value; None if it is none."""
    words = text.split(" ")
    if len(words) != 3 or not _ID.fullmatch(words[0]) or not _NUMBER.fullmatch(words[1]):
        return None
    rates = {}
    for entry in filter(None, words[2].split(",")):
        place, _, rate = entry.rpartition("=")
        if not place.partition("/")[2] or not _NUMBER.fullmatch(rate):
            return None
        rates[place] = int(rate)
    return Access(words[0], int(words[1]), rates)
