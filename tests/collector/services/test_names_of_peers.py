"""Services of hosts without a capture are called by the names of their addresses."""

import polars as pl

from collector.findings.finding import with_names_of_peers
from collector.hops.quality import ConnectionQuality, Counts
from collector.hops.quality_summary import connection_name, with_names_of_ends
from collector.services.naming import NAMED, with_peer_names
from collector.services.servers import Server
from collector.trace.model import AddressName, ServiceInfo, TraceInfo
from collector.trace.peer_names import PeerNames
from collector.trace.schema import conform

NAMES = tuple(
    AddressName(address, name, "lab")
    for address, name in (("10.0.0.5", "cache"), ("10.0.0.6", "www"), ("10.0.0.7", "www"), ("fd00::5", "v6"))
)
PEERS = PeerNames(TraceInfo(1, "0", (), names=NAMES))


def names_of(*places: tuple[str, int], known: tuple[ServiceInfo, ...] = ()) -> list[tuple[str, str]]:
    """The names and evidences of servers at these places, in addition to those that are known."""
    servers = [Server(host, port) for host, port in places]
    return [(each.name, each.evidence) for each in with_peer_names(known, servers, NAMES, PEERS)]


def test_a_server_that_nothing_names_has_its_addresss_name() -> None:
    assert names_of(("10.0.0.5", 80), ("fd00::5", 81), ("web", 82), ("10.0.0.9", 83)) == [
        ("cache:80", "10.0.0.5 is cache in lab"),
        ("v6:81", "fd00::5 is v6 in lab"),
    ]


def test_a_name_of_two_addresses_names_no_server() -> None:
    assert names_of(("10.0.0.6", 80), ("10.0.0.7", 80)) == []


def test_better_names_stay_and_addresses_in_them_are_named() -> None:
    known = (
        ServiceInfo("10.0.0.5", 6379, "redis 10.0.0.5:6379+1", "is sent GET"),
        ServiceInfo("fd00::5", 80, "minio", "is asked"),
        ServiceInfo("10.0.0.5", 80, "at 10.0.0.5", NAMED),
        ServiceInfo("", 90, "everywhere", NAMED),
    )
    found = names_of(("10.0.0.5", 6379), ("fd00::5", 80), ("10.0.0.5", 80), ("10.0.0.5", 90), known=known)
    assert [name for name, _ in found] == ["redis cache:6379+1", "minio", "at 10.0.0.5", "everywhere"]


def test_texts_of_findings_have_names_and_remedies_addresses() -> None:
    rows = {"text": ["refused by 10.0.0.5:80", None], "remedy": ["ping 10.0.0.5", None]}
    table = conform("findings", pl.DataFrame(rows).to_arrow())
    found = pl.DataFrame(with_names_of_peers(table, PEERS)).select(pl.col("text", "remedy").cast(pl.String)).rows()
    assert found == [("refused by cache:80", "ping 10.0.0.5"), (None, None)]
    assert with_names_of_peers(table, PEERS).schema == table.schema


def test_connections_that_are_paired_badly_have_names() -> None:
    counts = Counts(*[0] * 12)
    given = ConnectionQuality(1, None, "10.0.0.5", 40_000, "web", "10.0.0.1", 80, counts)
    (found,) = with_names_of_ends([given], PEERS)
    assert connection_name(found) == "cache 10.0.0.5:40000 → web 10.0.0.1:80"
    assert connection_name(given) == "10.0.0.5:40000 → web 10.0.0.1:80"
