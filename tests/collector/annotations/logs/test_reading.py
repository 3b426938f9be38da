"""Logs are found, assigned to hosts and read; what cannot be read is counted, quoted or refused."""

import gzip
from pathlib import Path

import pyarrow as pa
import pytest

from collector.annotations.log_options import LogOptions
from collector.annotations.logs import lines, reading
from collector.annotations.logs.places import log_files
from collector.annotations.logs.reading import read_logs, zones_of
from collector.trace.model import HostInfo
from tracer.errors import InputError

AT = 1_795_849_310 * 10**9
LINE = '10.0.0.1 - - [28/Nov/2026:07:01:50 +0000] "GET /a?token=s3cr3t HTTP/1.1" 200 300 "-" "curl/8"\n'


def host(name: str) -> HostInfo:
    return HostInfo(name, (), (), (), 1, 1, AT, AT + 10**9)


HOSTS = (host("web"), host("web1"), host("db"))


def read(*places: Path | str, **more: object) -> tuple[list[object], dict[str, int]]:
    records, counters = read_logs(LogOptions(tuple(map(str, places)), **more), HOSTS)
    return records, {f"{each.host} {each.name}": each.count for each in counters}


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("web.log", "web"),
        ("web1.log", "web1"),
        ("web1-access.log.2", "web1"),
        ("db/postgresql.log", "db"),
        ("db/inner/web.log", "web"),
        ("logs/db/inner/any.log", "db"),
    ],
)
def test_a_file_s_host_is_in_its_name_or_in_a_folder_s(tmp_path: Path, file: str, expected: str) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(LINE)
    assert log_files(str(path), ["web", "web1", "db"]) == [(expected, path)]
    assert log_files(f"web1={path}", ["web", "web1", "db"]) == [("web1", path)]


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("access.log", "which captured host it is of cannot be seen"),
        ("cache=access.log", "no captured host is called cache"),
        ("nothing.log", "no such file or folder"),
        ("empty", "holds no files"),
    ],
)
def test_a_place_that_is_no_log_of_a_captured_host_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("access.log").write_text(LINE)
    Path("empty").mkdir()
    with pytest.raises(InputError, match=message):
        read(place)


def test_a_folder_s_captures_are_no_logs(tmp_path: Path) -> None:
    (tmp_path / "web").mkdir()
    for name in ("web.pcap", "web.pcapng.zst", ".hidden", "command.json", "a.log"):
        (tmp_path / "web" / name).write_text(LINE)
    assert [path.name for _, path in log_files(str(tmp_path), ["web"])] == ["a.log"]


def test_plain_and_compressed_files_are_read_by_what_is_in_them(tmp_path: Path) -> None:
    (tmp_path / "web.log").write_text(LINE)
    (tmp_path / "web.log.1").write_bytes(gzip.compress(LINE.encode()))
    with pa.CompressedOutputStream(str(tmp_path / "web.log.2"), "zstd") as out:
        out.write(LINE.encode())
    records, counters = read(tmp_path)
    assert (len(records), counters) == (3, {})
    (tmp_path / "web.log.3").write_bytes(gzip.compress(LINE.encode())[:20])
    with pytest.raises(InputError, match="cannot be read"):
        read(tmp_path)


def test_secrets_in_a_line_are_overwritten(tmp_path: Path) -> None:
    (tmp_path / "web.log").write_text(LINE)
    [record] = read(tmp_path)[0]
    assert "s3cr3t" not in repr(record)
    assert record.target == "/a?token=xxxxxx"


def test_lines_of_no_format_are_counted_and_the_first_is_quoted(tmp_path: Path) -> None:
    (tmp_path / "web.log").write_bytes(
        b"hello token=s3cr3t \xff\x1b[31m\n\n" + LINE.encode() + b"more\n" + LINE[:30].encode()
    )
    records, [counter] = read_logs(LogOptions((str(tmp_path),)), HOSTS)
    assert (len(records), counter.name, counter.count) == (1, "log_lines_unread", 3)
    assert "hello token=" in counter.remedy
    assert counter.remedy.isprintable()
    assert "s3cr3t" not in counter.remedy


def test_a_place_without_a_known_line_is_refused_with_its_first_line(tmp_path: Path) -> None:
    (tmp_path / "web.log").write_text("nothing that is known\n")
    with pytest.raises(InputError, match="the first is: nothing that is known"):
        read(tmp_path)


def test_a_line_without_an_end_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "web.log").write_bytes(b"x" * (3 * lines.MOST_BYTES) + b"\n" + LINE.encode())
    found = list(lines.lines_of(tmp_path / "web.log"))
    assert [(len(line), is_whole) for line, is_whole in found] == [(lines.MOST_BYTES, False), (len(LINE) - 1, True)]
    assert read(tmp_path)[1] == {"web log_lines_unread": 1, "web log_lines_cut": 1}


def test_lines_of_another_time_are_counted_and_left_out(tmp_path: Path) -> None:
    (tmp_path / "web.log").write_text(LINE + LINE.replace("07:01:50", "06:01:50"))
    records, counters = read(tmp_path)
    assert (len(records), counters) == (1, {"web log_lines_outside": 1})


def test_what_was_assumed_of_stamps_is_counted(tmp_path: Path) -> None:
    line = "Nov 28 07:01:50 h haproxy[1]: 10.0.0.1:5000 [28/Nov/2026:07:01:50.760] a a/b 0/1/9 4711 -- 1/1/1/1/0 0/0\n"
    (tmp_path / "web.log").write_text(line)
    assert set(read(tmp_path)[1]) == {"web log_zone_assumed", "web log_year_assumed"}
    assert set(read(tmp_path, zones=zones_of(["UTC"]))[1]) == {"web log_year_assumed"}
    of_db = read(tmp_path, zones=zones_of(["db=UTC"]))[1]
    assert "web log_zone_assumed" in of_db


def test_more_lines_than_memory_is_for_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MOST_RECORDS", 2)
    (tmp_path / "web.log").write_text(LINE * 3)
    with pytest.raises(InputError, match="more than 2 lines"):
        read(tmp_path)
