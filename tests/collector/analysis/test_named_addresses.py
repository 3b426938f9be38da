"""Names of addresses, from hosts files and captures, in a trace and in what is made of it.

The captures are bundled ones as tcpdump would write them: nothing in them names a host. Storage hosts are left out.
"""

import json
import subprocess
from collections.abc import Mapping
from io import StringIO
from ipaddress import ip_address
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from collector.capture_files.readers import open_capture
from collector.commands.replay import command
from collector.decode.address_names import HOST_UNNAMED, NAMES_DISAGREE
from collector.decode.hosts_files import NAMES_UNREAD
from collector.export import mermaid, otlp, perfetto
from collector.queries import TraceSearch, open_trace
from collector.queries.captured import write_pcapng
from collector.queries.merged_capture import write_merged
from collector.queries.selection import Selection
from collector.reporting.html import make_html
from collector.reporting.report import build_report
from collector.reporting.text import show
from collector.scrub.scrubbing import scrub
from collector.sql.database import Database
from collector.trace.model import TraceInfo
from collector.trace.reading import Trace
from testkit import capture_files
from tests.helpers.system_tools import needs
from tests.viewer.test_routes import client_of
from viewer.wording import hop_title, packet_facts

BUNDLED = Path(__file__).parents[3] / "captures" / "swift-upload-1B"
CLIENT, PROXY, STORAGE = "10.77.0.10", "10.77.0.20", "10.77.0.31"
HOSTS = f"""
127.0.0.1 localhost one
{CLIENT} laptop.lab laptop
{PROXY} front.lab # the proxy
{STORAGE} disk1.lab disk1
10.77.0.99 payroll.lab
"""


def packets_of(host: str) -> list[tuple[int, bytes, int]]:
    """The packets of a bundled capture's `eth0`: time, bytes, length on the wire."""
    with open_capture(BUNDLED / f"{host}.pcapng") as reader:
        copies = reader.copy_packets(list(range(1, 10_000)))
        wires = {each.index for each in reader.interfaces if each.name == "eth0"}
    return [(copy.host_ns, copy.data, copy.original_len) for copy in copies if copy.interface in wires]


def write_plain(place: Path, host: str) -> None:
    packets = packets_of(host)
    lengths = [length for _, _, length in packets]
    place.write_bytes(capture_files.pcap([(at_ns, data) for at_ns, data, _ in packets], original_lens=lengths))


def write_with_names(place: Path, host: str, names: Mapping[str, list[str]], *, at_end: bool = False) -> None:
    """A pcapng with a Name Resolution Block, before the packets or behind them."""
    records = capture_files.names([(ip_address(address).packed, given) for address, given in names.items()])
    packets = b"".join(
        capture_files.enhanced_packet(at_ns, data, original_len=length) for at_ns, data, length in packets_of(host)
    )
    body = packets + records if at_end else records + packets
    place.write_bytes(capture_files.section() + capture_files.interface() + body)


def replay(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(command, ["--quiet", "-o", str(folder / "trace"), *arguments], catch_exceptions=False)


def info_of(folder: Path) -> TraceInfo:
    return Trace(str(folder / "trace")).info()


def counts(info: TraceInfo) -> dict[str, int]:
    names = (NAMES_DISAGREE, HOST_UNNAMED, NAMES_UNREAD)
    return {each.name: each.count for each in info.counters if each.name in names}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of `one.pcap` and `two.pcap`, which are the client's and the proxy's, with a hosts file."""
    made = tmp_path_factory.mktemp("named")
    write_plain(made / "one.pcap", "client")
    write_plain(made / "two.pcap", "proxy")
    (made / "lab-hosts").write_text(HOSTS)
    done = replay(made, "--hosts-file", f"{made}/lab-hosts", f"{made}/one.pcap", f"{made}/two.pcap")
    assert done.exit_code == 0, done.output
    return made


def test_lanes_are_named_by_their_addresses(folder: Path) -> None:
    hosts = info_of(folder).hosts
    assert [(each.host, each.file_name) for each in hosts] == [("laptop.lab", "one"), ("front.lab", "two")]
    assert [point.point for each in hosts for point in each.points] == ["laptop.lab/if0", "front.lab/if0"]
    known = Trace(str(folder / "trace")).read("events", ["host"])["host"].unique().to_pylist()
    assert sorted(known) == ["front.lab", "laptop.lab"]


def test_the_trace_has_the_names_that_occur_in_it(folder: Path) -> None:
    assert [(each.address, each.name, each.file, each.others) for each in info_of(folder).names] == [
        (CLIENT, "laptop.lab", "lab-hosts", ("laptop",)),
        (PROXY, "front.lab", "lab-hosts", ()),
        (STORAGE, "disk1.lab", "lab-hosts", ("disk1",)),
    ]


def test_the_report_says_who_named_what(folder: Path) -> None:
    report, printed = build_report(str(folder / "trace")), StringIO()
    show(report, Console(file=printed, width=100, highlight=False))
    said = "named by lab-hosts: laptop.lab (its file: one), front.lab (its file: two), 1 host that was not captured"
    assert said in " ".join(printed.getvalue().split())
    assert said in make_html(report)


def test_servers_without_a_capture_are_called_by_their_names(folder: Path) -> None:
    servers = {(each.host, each.port): each.name for each in info_of(folder).services}
    of_storage = {name for (host, _), name in servers.items() if host == STORAGE}
    assert of_storage, "they are in the trace"
    assert not any(STORAGE in name for name in of_storage)


def test_ends_without_a_capture_are_named_in_the_viewer(folder: Path) -> None:
    trace = open_trace(str(folder / "trace"))
    hops = [hop for number in range(trace.summary.hops_count) if (hop := trace.hop(number)) is not None]
    to_disk = next(hop for hop in hops if hop.sent_packet and hop.sent_packet.dst_addr == STORAGE)
    assert hop_title(to_disk) == "SYN: laptop.lab → disk1.lab"
    from_disk = next(hop for hop in hops if hop.received_packet and hop.received_packet.src_addr == STORAGE)
    assert hop_title(from_disk) == "SYN ACK: disk1.lab → laptop.lab"
    assert to_disk.sent_packet is not None
    assert dict(packet_facts(to_disk.sent_packet))["to"].endswith("(disk1.lab)")
    unnamed = next(hop for hop in hops if hop.sent_packet and hop.sent_packet.dst_addr == "10.77.0.32")
    assert hop_title(unnamed).endswith("front.lab → ?")
    servers = {span.server for number in range(trace.summary.roots_count) for span in trace.spans(number)}
    assert "disk1.lab" in servers
    assert any(node.name.endswith(" on disk1.lab") for node in trace.load.graph(hosts_apart=True).nodes)


def test_lists_of_packets_have_the_names_of_ends_without_a_capture(folder: Path) -> None:
    trace = open_trace(str(folder / "trace"))
    arrows = trace.packets_between(0, trace.duration_ns, 0, 500)
    named = trace.peers_of_arrows(arrows)
    assert len(named) == len(arrows.number)
    for number, (sender, receiver) in zip(arrows.number.tolist(), named, strict=True):
        hop = trace.hop(number)
        assert hop is not None
        assert (hop.source, hop.target) == (hop.source_host or sender, hop.target_host or receiver)
    assert {"disk1.lab"} < {name for ends in named for name in ends}
    answer = client_of(trace).get(f"/api/packets?from=0&to={trace.duration_ns}&rows=500").data
    header, _ = json.JSONDecoder().raw_decode(answer[4:].decode("latin-1"))
    assert header["peers"] == [list(ends) for ends in named]


def test_a_search_finds_ends_without_a_capture(folder: Path) -> None:
    trace = open_trace(str(folder / "trace"))
    search, numbers = TraceSearch(trace), range(trace.summary.roots_count)
    spans = {number: trace.spans(number) for number in numbers}
    by_client = [number for number in numbers if "disk1.lab" in {span.client for span in spans[number]}]
    by_server = [number for number in numbers if "disk1.lab" in {span.server for span in spans[number]}]
    assert by_client
    assert by_server
    assert search.requests("client:disk1").tolist() == by_client
    assert search.requests("server:disk1.lab").tolist() == by_server
    assert search.requests("host:disk1").tolist() == sorted({*by_client, *by_server})
    assert search.requests("host:disk2").tolist() == []
    assert "host:disk1.lab" in [each.text for each in search.completions("host:disk")]


def test_names_are_a_view_in_sql(folder: Path) -> None:
    database = Database(Trace(str(folder / "trace")))
    with database.run(f"select name, others, file from names where address = '{STORAGE}'") as rows:
        assert rows.read_all().to_pylist() == [{"name": "disk1.lab", "others": ["disk1"], "file": "lab-hosts"}]
    database.close()


def test_exports_have_the_names(folder: Path, tmp_path: Path) -> None:
    trace = Trace(str(folder / "trace"))
    (spans,) = otlp.write(trace, tmp_path / "spans.json")
    resources = [each["resource"] for each in json.loads(spans.read_text())["resourceSpans"]]
    hosts = [
        each["value"]["stringValue"] for of in resources for each in of["attributes"] if each["key"] == "host.name"
    ]
    assert {"disk1.lab", "front.lab"} <= set(hosts)
    assert any("disk1.lab" in line for line in mermaid.diagram(trace))
    (file,) = perfetto.write(trace, tmp_path / "trace.perfetto")
    assert b"packets with disk1.lab" in file.read_bytes()


def test_packets_are_exported_with_names(folder: Path, tmp_path: Path) -> None:
    trace = open_trace(str(folder / "trace"))
    write_merged(trace, None, tmp_path / "all.pcapng")
    write_pcapng(trace, Selection(to_ns=trace.duration_ns), tmp_path / "cut.pcapng")
    for file in ("all.pcapng", "cut.pcapng"):
        with open_capture(tmp_path / file) as reader:
            assert list(reader.rows())
            found = {each.address: each.name for each in reader.names}
        assert found == {CLIENT: "laptop.lab", PROXY: "front.lab", STORAGE: "disk1.lab"}, file


@needs("tshark", "tshark")
def test_wireshark_shows_the_names_of_exported_packets(folder: Path, tmp_path: Path) -> None:
    write_merged(open_trace(str(folder / "trace")), None, tmp_path / "all.pcapng")
    words = ["tshark", "-N", "n", "-r", f"{tmp_path}/all.pcapng", "-T", "fields", "-e", "ip.dst_host"]
    shown = set(subprocess.run(words, capture_output=True, text=True, check=True).stdout.split())
    assert shown >= {"laptop.lab", "front.lab", "disk1.lab"}


def test_names_are_scrubbed(folder: Path, tmp_path: Path) -> None:
    scrub(Trace(str(folder / "trace")), str(tmp_path / "copy"), ["laptop", "front", "disk1", ".lab", "lab-hosts"])
    original, info = info_of(folder), Trace(str(tmp_path / "copy")).info()
    assert [host.host for host in info.hosts] == [info.names[0].name, info.names[1].name]
    assert [bool(each.name) for each in info.names] == [bool(each.name) for each in original.names]
    assert not {each.address for each in info.names} & {each.address for each in original.names}


def test_other_options_know_hosts_by_their_files_as_well(folder: Path, tmp_path: Path) -> None:
    stamp_ns = info_of(folder).hosts[1].first_host_ns or 0
    line = {"time": stamp_ns / 1e9 + 0.001, "message": "hello"}
    (tmp_path / "app.log").write_text(json.dumps(line) + "\n")
    files = [f"{folder}/one.pcap", f"{folder}/two.pcap"]
    more = ["--name", "two:8080=the-front", "--logs", f"two={tmp_path}/app.log"]
    done = replay(tmp_path, "--hosts-file", f"{folder}/lab-hosts", *more, *files)
    assert done.exit_code == 0, done.output
    info = info_of(tmp_path)
    assert ("front.lab", 8080, "the-front") in [(each.host, each.port, each.name) for each in info.services]
    assert "name_of_no_server" not in [each.name for each in info.counters]
    hosts = Trace(str(tmp_path / "trace")).read("annotations", ["host"])["host"].to_pylist()
    assert hosts == ["front.lab"]


def test_a_recorded_command_and_samples_follow_a_host_that_is_renamed(folder: Path, tmp_path: Path) -> None:
    recorded = tmp_path / "recorded"
    recorded.mkdir()
    for name in ("one.pcap", "two.pcap"):
        (recorded / name).write_bytes((folder / name).read_bytes())
    begin_ns = info_of(folder).hosts[0].first_host_ns or 0
    ran = {
        "argv": ["upload"],
        "host": "one",
        "started_host_ns": begin_ns,
        "ended_host_ns": begin_ns + 9,
        "exit_status": 0,
    }
    (recorded / "command.json").write_text(json.dumps(ran))
    (recorded / "samples.csv").write_text(f"host,host_ns,metric,value\none,{begin_ns},cpu_busy,0.5\n")
    done = replay(tmp_path, "--hosts-file", f"{folder}/lab-hosts", str(recorded))
    assert done.exit_code == 0, done.output
    info = info_of(tmp_path)
    assert info.command is not None
    assert info.command.host == "laptop.lab"
    assert Trace(str(tmp_path / "trace")).read("samples", ["host"])["host"].to_pylist() == ["laptop.lab"]


@pytest.mark.parametrize("at_end", [False, True])
def test_captures_name_addresses_themselves(tmp_path: Path, at_end: bool) -> None:
    names = {CLIENT: ["laptop", "l"], STORAGE: ["disk1"], "2001:db8::9": ["v6"], "127.0.0.1": ["one"]}
    write_with_names(tmp_path / "one.pcapng", "client", names, at_end=at_end)
    write_plain(tmp_path / "two.pcap", "proxy")
    assert replay(tmp_path, f"{tmp_path}/one.pcapng", f"{tmp_path}/two.pcap").exit_code == 0
    info = info_of(tmp_path)
    assert [each.host for each in info.hosts] == ["laptop", "two"]
    assert [(each.address, each.name, each.file) for each in info.names] == [
        (CLIENT, "laptop", "one.pcapng"),
        (STORAGE, "disk1", "one.pcapng"),
    ]
    assert counts(info) == {}


def test_given_names_and_agents_names_stay(folder: Path, tmp_path: Path) -> None:
    in_folder = tmp_path / "captures" / "three"
    in_folder.mkdir(parents=True)
    write_plain(in_folder / "x.pcap", "storage1")
    files = [f"mine={folder}/one.pcap", str(BUNDLED / "proxy.pcapng"), str(tmp_path / "captures")]
    assert replay(tmp_path, "--hosts-file", f"{folder}/lab-hosts", *files).exit_code == 0
    assert sorted(each.host for each in info_of(tmp_path).hosts) == ["mine", "proxy", "three"]
    assert {each.file_name for each in info_of(tmp_path).hosts} == {""}


def test_what_agents_say_of_their_own_hosts_names_no_addresses(tmp_path: Path) -> None:
    assert replay(tmp_path, str(BUNDLED / "client.pcapng"), str(BUNDLED / "proxy.pcapng")).exit_code == 0
    assert info_of(tmp_path).names == ()


def test_a_host_with_packets_of_other_addresses_keeps_its_name(tmp_path: Path) -> None:
    """Its own addresses are inferred; the packets of another host are in its capture, too."""
    packets = sorted(packets_of("client") + packets_of("storage2"))
    lengths = [length for _, _, length in packets]
    mixed = capture_files.pcap([(at_ns, data) for at_ns, data, _ in packets], original_lens=lengths)
    (tmp_path / "one.pcap").write_bytes(mixed)
    write_plain(tmp_path / "two.pcap", "proxy")
    (tmp_path / "hosts").write_text(f"{CLIENT} laptop\n{PROXY} front\n10.77.0.32 disk2\n")
    done = replay(tmp_path, "--hosts-file", f"{tmp_path}/hosts", f"{tmp_path}/one.pcap", f"{tmp_path}/two.pcap")
    info = info_of(tmp_path)
    assert [each.host for each in info.hosts] == ["one", "front"]
    assert counts(info) == {HOST_UNNAMED: 1}
    assert "one may be disk2, but has packets between" in " ".join(done.output.split())


def test_captures_that_disagree_name_nothing(tmp_path: Path) -> None:
    write_with_names(tmp_path / "one.pcapng", "client", {CLIENT: ["laptop"], STORAGE: ["disk1"]})
    write_with_names(tmp_path / "two.pcapng", "proxy", {CLIENT: ["desktop"], STORAGE: ["disk1.lab"], PROXY: ["front"]})
    done = replay(tmp_path, f"{tmp_path}/one.pcapng", f"{tmp_path}/two.pcapng")
    info = info_of(tmp_path)
    assert [each.host for each in info.hosts] == ["one", "front"]
    assert counts(info) == {NAMES_DISAGREE: 1}
    shown = " ".join(done.output.split())
    assert f"{CLIENT} is laptop in one.pcapng and desktop in two.pcapng" in shown


def test_a_hosts_file_decides_what_captures_disagree_on(tmp_path: Path) -> None:
    write_with_names(tmp_path / "one.pcapng", "client", {CLIENT: ["laptop"]})
    write_plain(tmp_path / "two.pcap", "proxy")
    (tmp_path / "hosts").write_text(f"{CLIENT} notebook\nweb2\n")
    replay(tmp_path, "--hosts-file", f"{tmp_path}/hosts", f"{tmp_path}/one.pcapng", f"{tmp_path}/two.pcap")
    info = info_of(tmp_path)
    assert [each.host for each in info.hosts] == ["notebook", "two"]
    assert counts(info) == {NAMES_DISAGREE: 1, NAMES_UNREAD: 1}


def test_without_names_nothing_changes(folder: Path, tmp_path: Path) -> None:
    assert replay(tmp_path, f"{folder}/one.pcap", f"{folder}/two.pcap").exit_code == 0
    info = info_of(tmp_path)
    assert ([each.host for each in info.hosts], info.names) == (["one", "two"], ())
    assert "named by" not in make_html(build_report(str(tmp_path / "trace")))


@needs("tshark", "tshark")
def test_names_that_wireshark_wrote(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text(f"{CLIENT} laptop.ws\n{STORAGE} disk1.ws\n")
    options = ["-P", "-N", "n", "-H", f"{tmp_path}/hosts", "-W", "n"]
    for name in ("one", "two"):
        words = ["tshark", *options, "-r", f"{folder}/{name}.pcap", "-w", f"{tmp_path}/{name}.pcapng"]
        subprocess.run(words, capture_output=True, check=True)
    assert replay(tmp_path, f"{tmp_path}/one.pcapng", f"{tmp_path}/two.pcapng").exit_code == 0
    info = info_of(tmp_path)
    assert [each.host for each in info.hosts] == ["laptop.ws", "two"]
    assert [each.name for each in info.names] == ["laptop.ws", "disk1.ws"]


def test_a_file_that_is_no_hosts_file_is_said(folder: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(command, ["--hosts-file", f"{folder}/one.pcap", f"{folder}/two.pcap"])
    assert "is no hosts file" in str(done.exception)
