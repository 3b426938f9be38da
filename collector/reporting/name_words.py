"""Says in a report which lanes and other hosts are named by names of addresses, and by which files."""

from collector.trace.model import TraceInfo
from collector.trace.peer_names import PeerNames

MOST_FILES, MOST_HOSTS = 2, 3
"""At most so many files and renamed hosts are listed."""


def names_words(info: TraceInfo) -> str:
    """`named by lab-hosts: web1.example (its file: a), db.example (its file: b), 4 hosts that were not captured`; empty
    if no name is used."""
    peers = PeerNames(info)
    others = {each.name for each in info.names if peers.of(each.address)}
    renamed = [host for host in info.hosts if host.file_name]
    if not (others or renamed):
        return ""
    own = {address for host in renamed for address in host.addresses}
    files = dict.fromkeys(each.file for each in info.names if each.address in own or peers.of(each.address))
    parts = [f"{host.host} (its file: {host.file_name})" for host in renamed[:MOST_HOSTS]]
    if len(renamed) > MOST_HOSTS:
        more = len(renamed) - MOST_HOSTS
        parts.append(f"{more:,} more lane{'s' * (more > 1)}")
    if others:
        parts.append(f"{len(others):,} host{'s' * (len(others) > 1)} that {_were(len(others))} not captured")
    return f"named by {_some([file for file in files if file])}: {', '.join(parts)}"


def _were(count: int) -> str:
    return "were" if count > 1 else "was"


def _some(files: list[str]) -> str:
    more = f" and {len(files) - MOST_FILES:,} more files" if len(files) > MOST_FILES else ""
    return (" and ".join(files[:MOST_FILES]) if not more else ", ".join(files[:MOST_FILES]) + more) or "their addresses"
