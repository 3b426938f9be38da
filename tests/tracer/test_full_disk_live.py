"""An agent whose spool's disk has no space: one line, on in memory, and nothing that it captured there is lost."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from collector.service.ingest import session_status
from testkit.live_hosts import Capturing, Pair, pair
from tests.helpers.polling import wait_for
from tests.helpers.system_tools import or_skip

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: a small disk can be mounted only by root"),
]
TRACER = (sys.executable, "-P", "-m", "tracer")
SMALL = "size=192k"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 192 KiB."""
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", SMALL, "none", str(place)], check=True)
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture(scope="module")
def hosts() -> Iterator[Pair]:
    with ExitStack() as stack, or_skip():
        yield stack.enter_context(pair())


@pytest.mark.parametrize("full_before", [True, False])
def test_a_full_disk_is_one_line_and_nothing_is_lost(
    hosts: Pair, tmp_path: Path, small_disk: Path, full_before: bool
) -> None:
    if full_before:
        (small_disk / "other").write_bytes(bytes(184 << 10))
    send = ("--collector", "http://127.0.0.1:8710", "--session", f"s{full_before:d}", "--spool", str(small_disk))
    argv = (*TRACER, "capture", "-i", "va", "--host", "a", "--payload", "2000", *send)
    collect = (*TRACER, "collect", "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:8710")
    with Capturing(hosts.a, argv) as agent:
        hosts.exchange(*[4_000_000] * 16)  # 2 MB of what is kept
        said = ""
        while "going on in memory" not in said:
            said += agent.line()
        hosts.exchange(1, 200_000)
        with hosts.a.running(*collect, ready="collecting at"):
            wait_for(lambda: _count(tmp_path / "data", f"s{full_before:d}") > 0, "segments at the collector")
            said += agent.stop()
    assert "Traceback" not in said
    assert said.count("going on in memory, 48 MiB at most") == 1, said
    assert said.endswith("segments sent, 0 lost\n"), said
    (status,) = session_status(tmp_path / "data", f"s{full_before:d}").hosts
    assert status.closed
    assert status.missing_count == 0
    assert not list(Path("/dev/shm").glob(f"twintap-{os.getuid()}/*/s{full_before:d}/a/*/*.pcapng"))
    assert re.search(r"no space left on the disk|No space left", said)


def _count(data: Path, session: str) -> int:
    return sum(host.segments_count for host in session_status(data, session).hosts)
