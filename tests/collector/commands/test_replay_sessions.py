"""`tracer replay` of a session of which several collectors have a part each."""

import os
import shutil
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

from collector.capture_files.joined import joined_name, write_joined
from collector.commands.replay import command
from collector.decode.incarnations import stored_incarnations
from collector.decode.sources import host_sources
from collector.service.joining import write_durably
from collector.trace.reading import Trace
from tests.collector.service.test_live import HOSTS, network
from tests.helpers.live_segments import write_segments
from tracer.segments import incarnation_stem, segment_name

SECOND = 1_000_000_000
INCARNATION = "20261125T225248-0a1b2c"
NUMBERS = range(1, 7)


@pytest.fixture(scope="module")
def segments(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    """Of both hosts, six each, half a second long."""
    net, folder = network(), tmp_path_factory.mktemp("segments")
    return {host: write_segments(net, folder, host, [n * SECOND // 2 for n in range(1, 6)]) for host in HOSTS}


def store(data: Path, host: str, segments: list[Path], *numbers: int) -> Path:
    """Have segments of a host in a collector's folder; the folder of the session."""
    folder = data / "sessions" / "s1" / host / INCARNATION
    folder.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        place = folder / segment_name(incarnation_stem(host, INCARNATION), number)
        shutil.copyfile(segments[number - 1], place)
        os.utime(place, ns=(number * SECOND, number * SECOND))
    return data / "sessions" / "s1"


def join(session: Path, host: str) -> None:
    """Have one file of all segments of a host."""
    folder, stem = session / host / INCARNATION, incarnation_stem(host, INCARNATION)
    files = sorted(folder.iterdir())
    numbered = [(int(path.stem[-6:]), path) for path in files]
    write_durably(
        folder / joined_name(stem, numbered[0][0], numbered[-1][0]), lambda file: write_joined(file, numbered)
    )
    for path in files:
        path.unlink()


def hops(tmp_path: Path, *sessions: Path) -> pl.DataFrame:
    trace = tmp_path / f"trace-{len(list(tmp_path.iterdir()))}"
    done = CliRunner().invoke(command, ["--quiet", "-o", str(trace), *map(str, sessions)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    frame = pl.DataFrame(Trace(str(trace)).read("hops"))
    return frame.with_columns(pl.col(pl.Categorical).cast(pl.String))


def test_a_session_that_is_spread_over_collectors_is_what_one_would_have(
    tmp_path: Path, segments: dict[str, list[Path]]
) -> None:
    for host in HOSTS:
        whole = store(tmp_path / "all", host, segments[host], *NUMBERS)
    one = store(tmp_path / "one", "client", segments["client"], 1, 2, 3, 6)
    two = store(tmp_path / "two", "client", segments["client"], 3, 4, 5)  # the acknowledgement of 3 was lost
    store(tmp_path / "one", "server", segments["server"], 5, 6)
    store(tmp_path / "two", "server", segments["server"], 1, 2, 3, 4, 5)
    (tmp_path / "one" / "sessions" / "s1" / "live").mkdir()
    expected = hops(tmp_path, whole)
    assert set(expected["state"]) == {"matched"}
    assert len(expected) > 1000
    assert hops(tmp_path, one, two).equals(expected)
    assert hops(tmp_path, two, one).equals(expected)
    join(two, "server")
    join(one, "client")
    assert hops(tmp_path, one, two).equals(expected)
    assert len(hops(tmp_path, one)) != len(expected), "one of them has a part"


def test_a_segment_that_two_collectors_have_is_read_once_in_its_place(
    tmp_path: Path, segments: dict[str, list[Path]]
) -> None:
    one = store(tmp_path / "one", "client", segments["client"], 1, 2, 5, 6)
    two = store(tmp_path / "two", "client", segments["client"], 2, 3, 4, 5)
    (found,) = stored_incarnations(one, two)
    assert [int(path.stem[-6:]) for path in found.files] == list(NUMBERS)
    assert (found.first_ns, found.last_ns) == (SECOND, 6 * SECOND)
    join(two, "client")
    (source,) = host_sources([str(one), str(two)])
    assert [path.name.partition(INCARNATION)[2] for path in source.files] == [
        "-000001.pcapng",
        "-000002.pcapng",
        "-000002-000005.pcapng.zst#3-5",
        "-000006.pcapng",
    ]
