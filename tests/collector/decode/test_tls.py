"""Requests over TLS: real captures of nginx 1.22 with curl and Python's ssl (OpenSSL), cut to 160 bytes a packet.

`*-keepalive`: curl asks for five things on one connection: 6 bytes, 54,000 bytes, a slow answer, 6 bytes, the slow one.
`*-resumed`: three connections one after the other, the second and third with the session of the one before, four
requests on each. The server's access log has one line for each of these requests.
"""

from pathlib import Path

import polars as pl
import pytest

from collector.trace.reading import Trace
from tests.helpers.command_line import run_here

CAPTURES = Path(__file__).parents[2] / "golden" / "tls"
KEEPALIVE, RESUMED = [[263, 54368, 645, 263, 645]], [[263] * 4] * 3
EXTRA = {"tls12": 7, "tls13": 0}
"""What an answer is longer in a version: its record's nonce is sent, its content type is not."""


def requests_of(place: Path, *captures: Path) -> pl.DataFrame:
    done = run_here("replay", "--quiet", "-o", place, *captures)
    assert done.returncode == 0, done.stderr
    exchanges, spans = (pl.DataFrame(Trace(str(place)).read(name)) for name in ("exchanges", "spans"))
    rows = exchanges.join(spans, left_on="exchange_id", right_on="span_id")
    return rows.sort("connection_id", "request_first_sent_trace_ns")


@pytest.mark.parametrize("host", ["both", "client"])
@pytest.mark.parametrize("name", ["tls12-keepalive", "tls12-resumed", "tls13-keepalive", "tls13-resumed"])
def test_requests_are_those_of_the_access_log(name: str, host: str, tmp_path: Path) -> None:
    version, kind = name.split("-")
    captures = [CAPTURES / name / f"{each}.pcap.gz" for each in (["client", "server"] if host == "both" else [host])]
    rows = requests_of(tmp_path / "trace", *captures)
    found = rows.group_by("connection_id", maintain_order=True).agg(
        "response_bytes", "tls_ns", "connect_ns", "complete"
    )
    expected = KEEPALIVE if kind == "keepalive" else RESUMED
    # 54,368 bytes are four records, each of which has what is extra.
    sizes = [[size + EXTRA[version] * (1 + size // 16384) for size in sizes] for sizes in expected]
    assert found["response_bytes"].to_list() == sizes
    for opening in (*found["tls_ns"].to_list(), *found["connect_ns"].to_list()):
        assert opening[0] > 0
        assert not any(opening[1:])
    assert all(all(complete) for complete in found["complete"])
    work = rows["work_ns" if host == "both" else "server_or_network_ns"]
    assert (work > 0).all()
