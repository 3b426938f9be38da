"""A packet field by field: tshark where it is, our decoder otherwise, and a sentence where the capture is gone."""

import shutil
import subprocess
from pathlib import Path

import dpkt
import polars as pl
import pytest
from playwright.sync_api import Page, expect

from collector.analysis import analyse
from collector.decode.sources import host_sources
from collector.queries import PacketFields, Selection, TraceView, open_trace, write_pcapng
from tests.helpers.planted_secrets import SERVER, http2_places, write_captures
from tests.helpers.viewer_page import act_and_settle, leaving, open_page
from tests.helpers.viewer_server import serving
from tracer.errors import InputError
from viewer import explaining
from viewer.explaining import explain

SAMPLE = Path(__file__).parents[2] / "captures" / "swift-upload-1B"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> TraceView:
    """A trace whose captures lie beside it, as `tracer record` leaves them."""
    folder = tmp_path_factory.mktemp("explained")
    captures = folder / "trace.captures"
    shutil.copytree(SAMPLE, captures, ignore=shutil.ignore_patterns("expected", "*.toml"))
    analyse(host_sources([str(captures)]), str(folder / "trace"))
    return open_trace(str(folder / "trace"))


def request_packet(trace: TraceView) -> PacketFields:
    """The first packet of a PUT, as its sender captured it."""
    number = next(request.number for request in trace.requests(9) if request.title.endswith("one-byte"))
    for hop in trace.request_packets(number, 0, 50).number:
        packet = trace.hop(int(hop)).sent_packet  # type: ignore[union-attr]
        if packet is not None and packet.payload_len > 100:
            return packet
    raise AssertionError("no packet with a head")


needs_tshark = pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")


@needs_tshark
def test_tshark_shows_every_layer_of_that_packet_alone(trace: TraceView) -> None:
    packet = request_packet(trace)
    explained = explain(trace, packet)
    assert (explained.by, explained.note) == ("tshark", "")
    assert [layer.name for layer in explained.layers] == ["ETH", "IP", "TCP", "HTTP"]
    texts = {field.text for layer in explained.layers for field in layer.fields}
    assert f"Source Port: {packet.src_port}" in texts
    assert any("/v1/AUTH_test" in text for text in texts)
    port = next(field for field in explained.layers[2].fields if field.text.startswith("Source Port"))
    at = 2 * port.at
    assert int(explained.bytes[at : at + 2 * port.size], 16) == packet.src_port


@pytest.mark.parametrize("missing", ["tshark", "pyshark"])
def test_without_tshark_our_own_decoder_answers(
    trace: TraceView, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    gone = "viewer.explaining.shutil.which" if missing == "tshark" else "viewer.explaining.find_spec"
    monkeypatch.setattr(gone, lambda name: None)
    packet = request_packet(trace)
    explained = explain(trace, packet)
    assert explained.by == "our decoder"
    assert "install tshark and pyshark" in explained.note
    assert f"seq: {packet.seq}" in {field.text for field in explained.layers[0].fields}
    assert len(explained.bytes) == 2 * packet.captured_len


@pytest.mark.parametrize(
    ("program", "wall_seconds", "trouble"),
    [
        (["sleep", "1000"], 0.2, "longer than"),
        (["false"], 60, "status 1"),
        (["sh", "-c", "kill -9 $$"], 60, "status -9"),
    ],
)
def test_a_dissector_that_fails_or_hangs_is_ended_and_said(
    monkeypatch: pytest.MonkeyPatch, program: list[str], wall_seconds: float, trouble: str
) -> None:
    monkeypatch.setattr(explaining, "WALL_SECONDS", wall_seconds)
    printed, said = explaining._run_tool(program, b"")
    assert printed == b""
    assert trouble in said


def test_a_capture_that_is_gone_or_another_is_said(trace: TraceView, tmp_path: Path) -> None:
    packet = request_packet(trace)
    captures = Path(f"{trace.url}.captures")
    file, aside = captures / f"{packet.host}.pcapng", tmp_path / "aside"
    file.rename(aside)
    try:
        explained = explain(trace, packet)
        assert "is not there any more" in explained.note
        assert explained.layers
        assert not explained.bytes
        other = next(path for path in captures.glob("*.pcapng"))
        shutil.copy(other, file)
        assert "is not the capture that this trace was made from" in explain(trace, packet).note
    finally:
        shutil.move(aside, file)


@needs_tshark
def test_a_selection_is_cut_from_the_captures_packet_by_packet(trace: TraceView, tmp_path: Path) -> None:
    place = tmp_path / "cut.pcapng"
    write_pcapng(trace, Selection(request=1), place)
    wanted = set()
    for number in trace.request_packets(1, 0, 10_000).number:
        hop = trace.hop(int(number))
        assert hop is not None
        wanted |= {(each.host, each.frame) for each in (hop.sent_packet, hop.received_packet) if each is not None}
    argv = ["tshark", "-r", str(place), "-T", "fields", "-e", "frame.time_epoch", "-e", "tcp.seq_raw"]
    lines = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
    assert len(lines) == 2 * len(wanted)
    events = pl.read_parquet(f"{trace.url}/events.parquet", columns=["host_ns", "seq"])
    known = {(str(ns), str(seq)) for ns, seq in events.iter_rows()}
    found = {(stamp.replace(".", ""), seq) for stamp, seq in zip(lines[::2], lines[1::2], strict=True)}
    assert found <= known


def test_too_many_packets_are_refused_in_a_sentence(
    trace: TraceView, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collector.queries.captured.MOST_PACKETS", 10)
    with pytest.raises(InputError, match="more than the 10 that are cut at once; zoom in"):
        write_pcapng(trace, Selection(request=1), tmp_path / "cut.pcapng")


@pytest.mark.browser
def test_in_the_page_a_packet_is_explained_and_its_request_saved_as_a_capture(
    page: Page, trace: TraceView, tmp_path: Path
) -> None:
    """By keyboard: search the upload, list its packets, explain one of them, save all of them."""
    with serving(trace) as url, leaving(page):
        open_page(page, url)
        page.keyboard.press("/")
        page.keyboard.type("one-byte")
        act_and_settle(page, lambda: page.keyboard.press("Enter"))
        page.keyboard.press("Escape")
        page.keyboard.press("l")
        row = page.locator(".packet-row:not(.packet-head)", has_text="data").first
        row.click()
        page.keyboard.press("x")
        fields = page.locator("#packet-fields")
        expect(fields.locator("p.hint")).to_contain_text("As sent, by ")
        expect(fields.locator("summary", has_text="TCP")).to_have_count(1)
        fields.locator("summary", has_text="TCP").click()
        port = fields.locator(".field", has_text="Source Port").first
        expect(port).to_be_visible()
        port.hover()
        expect(fields.locator(".bytes .marked")).to_have_count(2)
        number = int(page.evaluate("window.twintap.state.selection.request"))
        page.locator("#arrows").focus()
        page.keyboard.press("e")
        with page.expect_download() as download:
            page.locator('#save [data-save="pcapng"]').click()
        saved = tmp_path / "request.pcapng"
        download.value.save_as(saved)
    hops = [trace.hop(int(each)) for each in trace.request_packets(number, 0, 10_000).number]
    ends = [end for hop in hops if hop is not None for end in (hop.sent_packet, hop.received_packet)]
    with saved.open("rb") as file:
        assert sum(1 for _ in dpkt.pcapng.Reader(file)) == len([end for end in ends if end is not None]) > 100
    if shutil.which("tshark"):
        read = subprocess.run(
            ["tshark", "-r", str(saved), "-T", "fields", "-e", "http.request.uri"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert "one-byte" in read.stdout


@needs_tshark
def test_a_known_protocol_is_read_at_any_port(tmp_path: Path) -> None:
    """HTTP/2 at a port of no protocol: tshark alone would show bytes."""
    files = write_captures(tmp_path, http2_places()[:2])
    analyse(host_sources([str(file) for file in files]), str(tmp_path / "trace"))
    trace = open_trace(str(tmp_path / "trace"))
    hops = [trace.hop(number) for number in range(trace.summary.hops_count)]
    answers = [hop for hop in hops if hop and hop.sent_packet and hop.sent_packet.src_port == SERVER[1]]
    hop = next(hop for hop in answers if hop.sent_packet and hop.sent_packet.payload_len)
    assert hop.sent_packet is not None
    plain, known = (explain(trace, hop.sent_packet, connection) for connection in (None, hop.connection_id))
    assert [explained.layers[-1].name == "HTTP2" for explained in (plain, known)] == [False, True]
