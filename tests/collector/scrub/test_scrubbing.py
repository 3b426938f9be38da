"""A copy for sharing: nothing of what was planted is in any file of it, and it says the same of times and shapes."""

import json
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from collector.analysis import analyse
from collector.commands.scrub import command
from collector.decode.sources import host_sources
from collector.reporting.report import build_report
from collector.scrub.names import KEPT_WORDS, Names
from collector.scrub.scrubbing import KEPT, rule_of, scrub, text_columns
from collector.trace.model import CommandInfo, CounterInfo
from collector.trace.reading import Trace
from collector.trace.schema import TABLES
from tests.collector.trace.test_format import OLDER
from tests.helpers.script_traces import write_script_trace
from tracer.errors import InputError

BUNDLED = Path(__file__).resolve().parents[3] / "captures" / "bench-2-puts"
PLANTED = ("payroll", "Zürich", "oberon", "mallory", "tx7f3a9", "alice", "8814402", "s3cr3t")
SCRIPT = """
    mallory:40000 > oberon:8080
          0 > syn
         50 < syn_ack
        100 > 0:200 PUT /v1/payroll/Zürich/8814402/s3cr3t?alice=1 tx=tx7f3a9
     900000 < 0:100 500 tx=tx7f3a9
    mallory:40001 > oberon:8080
       1000 > syn
       1050 < rst
    oberon:50000 > storage1:6200
       1500 > 0:200 PUT /d1/7/payroll/Zürich tx=tx7f3a9 lost
       2000 > 0:200 #2 PUT /d1/7/payroll/Zürich tx=tx7f3a9
       3000 < 0:100 201 tx=tx7f3a9
"""


def frames(url: str | Path) -> dict[str, pl.DataFrame]:
    """The tables that a trace has, by name."""
    trace, found = Trace(str(url)), {}
    for name, schema in TABLES.items():
        if trace.table_bytes(name):
            found[name] = pl.DataFrame(trace.read(name, schema.names)).cast({pl.Categorical: pl.String})
    return found


def texts_of(url: Path) -> list[str]:
    """Every text of a trace: of its tables, and `trace.json`."""
    found = [(url / "trace.json").read_text()]
    for frame in frames(url).values():
        for column in frame.select(pl.col(pl.String)):
            found += column.drop_nulls().unique().to_list()
    return found


@pytest.fixture
def planted_trace(tmp_path: Path) -> Path:
    command_info = CommandInfo(("upload", "--as", "alice", "payroll"), "mallory", 0, 1, 0)
    counters = (CounterInfo("oberon", "decode_cut", "notice", 3, "look at /srv/payroll/oberon.pcap of alice"),)
    write_script_trace(str(tmp_path / "trace"), SCRIPT, command_info, counters)
    assert all(any(plant in text for text in texts_of(tmp_path / "trace")) for plant in PLANTED), "each is there"
    return tmp_path / "trace"


def test_every_column_of_texts_has_a_rule() -> None:
    for table, column in text_columns():
        assert rule_of(table, column) == KEPT or hasattr(Names, rule_of(table, column)), (table, column)


def test_nothing_that_was_planted_is_left(planted_trace: Path, tmp_path: Path) -> None:
    scrub(Trace(str(planted_trace)), str(tmp_path / "copy"))
    texts = texts_of(tmp_path / "copy")
    assert {plant for plant in PLANTED for text in texts if plant.casefold() in text.casefold()} == set()
    raw = b"".join(path.read_bytes() for path in (tmp_path / "copy").rglob("*") if path.is_file())
    assert not any(plant.encode() in raw for plant in PLANTED)


def test_findings_name_the_same_under_other_names(planted_trace: Path, tmp_path: Path) -> None:
    names = scrub(Trace(str(planted_trace)), str(tmp_path / "copy")).names
    before, after = (frames(url)["findings"] for url in (planted_trace, tmp_path / "copy"))
    assert after["kind"].to_list() == before["kind"].to_list()
    assert after["host"].to_list() == [names.hosts.get(host) for host in before["host"]]
    for old, new in zip(before["text"], after["text"], strict=True):
        expected = old.replace("mallory", names.hosts["mallory"]).replace("oberon", names.hosts["oberon"])
        assert new == expected.replace("storage1", names.hosts["storage1"])


def shape(column: pl.Series) -> list[int | None]:
    """Which rows of a column are equal, whatever they are."""
    order = {value: at for at, value in enumerate(column.drop_nulls().unique(maintain_order=True))}
    return [None if value is None else order[value] for value in column]


@pytest.fixture(scope="module")
def bench(tmp_path_factory) -> tuple[Path, Path, Names]:
    place = tmp_path_factory.mktemp("scrub")
    analyse(host_sources([str(BUNDLED)]), str(place / "trace"))
    done = scrub(Trace(str(place / "trace")), str(place / "copy"))
    return place / "trace", place / "copy", done.names


def test_equal_stays_equal_and_all_else_is_kept(bench: tuple[Path, Path, Names]) -> None:
    before, after = frames(bench[0]), frames(bench[1])
    assert before.keys() == after.keys()
    for table, rows in after.items():
        for name in before[table].columns:
            if before[table][name].dtype != pl.String:
                assert rows[name].equals(before[table][name], null_equal=True), (table, name)
            else:
                assert shape(rows[name]) == shape(before[table][name]), (table, name)


def test_a_report_of_the_copy_says_the_same(bench: tuple[Path, Path, Names]) -> None:
    ours, theirs = (build_report(str(place)) for place in bench[:2])
    assert [part.duration_ns for part in theirs.story.parts] == [part.duration_ns for part in ours.story.parts]
    assert theirs.story.duration_ns == ours.story.duration_ns
    assert "swift-proxy" in theirs.story.sentence or any("swift-proxy" in part.label for part in theirs.story.parts)
    assert "AUTH_test" not in json.dumps([part.label for part in theirs.story.parts])


def test_names_that_look_like_what_stands_for_names(tmp_path: Path) -> None:
    script = "host2:40000 > host1:8080\n 0 > syn\n 50 < syn_ack\n 100 > 0:100 GET /w2/w1/1 \n 300 < 0:50 200"
    write_script_trace(str(tmp_path / "trace"), script)
    names = scrub(Trace(str(tmp_path / "trace")), str(tmp_path / "copy")).names
    assert set(names.hosts) == {"host1", "host2"}
    assert set(names.hosts.values()) == {"host3", "host4"}
    assert set(names.words.values()) == {"w3", "w4"}
    assert frames(tmp_path / "copy")["exchanges"]["target"].to_list() == ["/w3/w4/1"]


def test_addresses_of_the_ranges_that_stand_for_addresses() -> None:
    names = Names(frozenset({"198.18.0.1", "2001:db8::1"}))
    assert [names.address(each) for each in ("198.18.0.1", "10.1.2.3", "198.18.0.1", "fe80::1")] == [
        "198.18.0.2", "198.18.0.3", "198.18.0.2", "2001:db8::3",
    ]  # fmt: skip
    assert [names.address(each) for each in ("127.0.0.1", "::1", "0.0.0.0")] == ["127.0.0.1", "::1", "0.0.0.0"]


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("3 requests from web1 to 10.0.0.5:80", "3 requests from host1 to 198.18.0.1:80"),
        ("web1. and web1-old, which says too much", "host1. and host1-old, which says too much"),
        ("PUT /v1/acme of swift-proxy", "PUT /v1/w1 of swift-proxy"),
        ("an address nobody saw: 192.0.2.77", "an address nobody saw: 198.18.0.2"),
        ("id 123456789, 42 times", "id 1, 42 times"),
        ("at 12:34:56.789", "at 12:34:56.789"),
        ("see /srv/web1.pcap and web1.pcap", "see host1-1.pcap and host1-1.pcap"),
    ],
)
def test_sentences(sentence: str, expected: str) -> None:
    names = Names()
    names.host("web1")
    names.address("10.0.0.5")
    names.text("acme/123456789")
    names.file("/srv/web1.pcap", "host1-1.pcap")
    assert names.sentence(sentence) == expected


@pytest.mark.parametrize(
    ("service", "expected"),
    [
        ("swift-proxy", "swift-proxy"),
        ("port 8000", "port 8000"),
        ("web1:80", "host1:80"),
        ("10.0.0.5:80", "198.18.0.1:80"),
        ("[::1]:80", "[::1]:80"),
        ("acme-billing", "w1-w2"),
    ],
)
def test_services(service: str, expected: str) -> None:
    names = Names()
    names.host("web1")
    assert names.service(service) == expected


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("cpu_percent", "cpu_percent"),
        ("disk_busy_percent.nvme0n1", "disk_busy_percent.nvme0n1"),
        ("received_bytes_per_s.eth0", "received_bytes_per_s.eth0"),
        ("sent_bytes_per_s.acme-uplink", "sent_bytes_per_s.w1-w2"),
    ],
)
def test_metrics(metric: str, expected: str) -> None:
    assert Names().metric(metric) == expected


@given(st.text(), st.sampled_from(["text", "service", "method", "host", "point"]))
def test_no_word_is_left(text: str, rule: str) -> None:
    names = Names()
    made = getattr(names, rule)(text) if text else ""
    if rule == "method" and made == text:
        return  # in capitals
    for word in (*names.words, *(each for each in names.numbers if len(each) >= 6)):
        assert word.lower() not in KEPT_WORDS
        assert word not in names.words.values() or word not in made.split()
    assert names.left_in(made) is None or names.left_in(made) in {*names.words.values(), *names.hosts.values()}


def test_known_software_keeps_its_name_though_parts_of_it_are_names() -> None:
    names = Names()
    names.host("proxy")
    names.text("swift")
    assert names.sentence("in the queue of swift-proxy at proxy, /swift") == "in the queue of swift-proxy at host1, /w1"
    assert names.left_in("swift-proxy") is None
    assert names.left_in("/swift") == "swift"
    names.text("port")
    assert names.left_in("port 8000") is None
    assert names.left_in("/port/8000") == "port"


def test_what_is_not_replaced_is_found_before_there_is_a_copy(
    planted_trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Names, "sentence", lambda _, sentence: sentence)
    with pytest.raises(InputError, match=r"the copy would still have '(mallory|oberon)' in findings\."):
        scrub(Trace(str(planted_trace)), str(tmp_path / "copy"))
    assert not (tmp_path / "copy").exists()
    assert not list(tmp_path.glob(".copy*"))


def test_a_forbidden_text_is_found_wherever_it_is(planted_trace: Path, tmp_path: Path) -> None:
    forbidden, copy = tmp_path / "forbidden.txt", tmp_path / "copy"
    forbidden.write_text("no such thing\n\n  Put \n")
    done = CliRunner().invoke(command, [f"{planted_trace}", "-o", f"{copy}", "--check", f"{forbidden}"])
    assert isinstance(done.exception, InputError)
    assert "would still have 'put' in " in str(done.exception)
    assert not copy.exists()


def test_what_the_command_says_and_its_key(planted_trace: Path, tmp_path: Path) -> None:
    forbidden, copy, key_file = (tmp_path / name for name in ("forbidden.txt", "copy", "key"))
    forbidden.write_text("payroll\nalice\n")
    arguments = [f"{planted_trace}", "-o", f"{copy}", "--check", f"{forbidden}", "--key", f"{key_file}"]
    done = CliRunner().invoke(command, arguments)
    assert done.exit_code == 0, done.exception
    assert "3 hosts, 3 addresses, " in done.output
    assert "nor of the 2 texts of " in done.output
    key = json.loads(key_file.read_text())
    assert key["hosts"]["mallory"].startswith("host")
    assert key_file.stat().st_mode & 0o777 == 0o600
    assert not any("mallory" in text for text in texts_of(copy))


def test_a_trace_that_an_earlier_version_wrote(tmp_path: Path) -> None:
    assert scrub(Trace(str(OLDER)), str(tmp_path / "copy")).checked_count > 0
    assert build_report(str(tmp_path / "copy")).story.duration_ns > 0


def test_a_copy_in_place_of_the_trace_is_refused(planted_trace: Path) -> None:
    done = CliRunner().invoke(command, [f"{planted_trace}", "-o", f"{planted_trace}/"])
    assert isinstance(done.exception, InputError)
    assert "take the trace's place" in str(done.exception)
