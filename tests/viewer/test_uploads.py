"""Captures that are dropped on the page: bounded, judged, confirmed, made into a trace; wrong ones are a sentence."""

import gzip
import io
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from werkzeug.test import Client

from collector.decode.input_limits import InputLimits
from collector.queries import TraceView
from testkit.capture_files import pcap
from tests.helpers.viewer_page import leaving
from tests.helpers.viewer_server import serving
from viewer.access import Access
from viewer.app import make_viewer
from viewer.uploads import PIECE_BYTES, Uploads

SAMPLE = Path(__file__).parents[2] / "captures" / "swift-upload-1B"
PAGE = {"X-Twintap-Upload": "1"}


@pytest.fixture
def uploads() -> Uploads:
    taken = Uploads(lambda trace: None, most_bytes=50_000)
    yield taken  # type: ignore[misc]
    taken.close()
    assert not taken._folder.exists()


def send(uploads: Uploads, name: str, content: bytes) -> str:
    """Upload a file; what is wrong with it, or its host."""
    begun = uploads.begin(name)
    for offset in range(0, len(content), 10_000):
        piece = content[offset : offset + 10_000]
        reply = uploads.add(begun.number, offset, io.BytesIO(piece), len(piece))
        if reply.error:
            return reply.error
    reply = uploads.end(begun.number)
    return reply.error or reply.host


CAPTURE = (SAMPLE / "client.pcapng").read_bytes()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.pcap", CAPTURE, "client"),  # as the agent wrote into it
        ("notes.pcap", b"hello, I am text\n" * 9, "notes.pcap is a text file, not a capture; give a pcap"),
        ("empty.pcap", b"", "empty.pcap is empty"),
        ("old.zip", b"PK\x03\x04" + b"\0" * 60, "old.zip is a ZIP archive; unpack it first"),
        ("large.pcap", b"\0" * 60_000, "all files together may hold"),
        ("../../etc/passwd", b"root:x:0:0\n", "../../etc/passwd is a text file"),
        ("\u202egpcap\x00.exe\n", b"text", "gpcap.exe is"),
    ],
)
def test_a_file_is_taken_or_what_it_is_instead_is_said(uploads: Uploads, name: str, content: bytes, said: str) -> None:
    assert send(uploads, name, content).startswith(said)
    assert all(path.parent == uploads._folder for path in uploads._folder.rglob("*"))


def test_pieces_out_of_order_and_unknown_files_are_refused(uploads: Uploads) -> None:
    begun = uploads.begin("a.pcap")
    assert "out of order" in uploads.add(begun.number, 5, io.BytesIO(b"x"), 1).error
    assert "out of order" in uploads.add(begun.number, 0, io.BytesIO(b""), PIECE_BYTES + 1).error
    assert "not expected" in uploads.add(999, 0, io.BytesIO(b"x"), 1).error
    assert "not expected" in uploads.end(999).error


def test_no_more_files_than_allowed(uploads: Uploads, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("viewer.uploads.MOST_FILES", 2)
    numbers = [uploads.begin("a.pcap").number for _ in range(3)]
    assert numbers[2] == 0
    uploads.drop(numbers[0])
    assert uploads.begin("a.pcap").number


@pytest.mark.parametrize("host", ["", " ", "a/b", "a=b", "x" * 65, "a\nb", "\u202eb"])
def test_a_host_needs_a_name(uploads: Uploads, host: str) -> None:
    send(uploads, "a.pcap", CAPTURE)
    making = uploads.make({1: host})
    assert making.state == "failed"
    assert "give a.pcap a host's name" in making.text


def test_a_host_that_looks_like_an_option_is_a_host(tmp_path: Path) -> None:
    made: list[TraceView] = []
    taken = Uploads(made.append)
    for path in (SAMPLE / "client.pcapng", SAMPLE / "proxy.pcapng"):
        send(taken, path.name, path.read_bytes())
    taken._make({f"{host}={taken._files[number].path}": taken._files[number] for number, host in ((1, "-o"), (2, "p"))})
    assert taken.making().state == "done", taken.making().text
    assert {host.host for host in made[0].info.hosts} == {"-o", "p"}
    taken.close()


def test_what_replay_says_is_said_with_the_files_own_name(uploads: Uploads) -> None:
    send(uploads, "a.pcap", CAPTURE)
    uploads._files[1].path.write_bytes(b"no capture any more")
    uploads._make({f"client={uploads._files[1].path}": uploads._files[1]})
    assert uploads.making().state == "failed"
    assert uploads.making().text.startswith("a.pcap is ")
    assert "\n" not in uploads.making().text


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (
            {"most_memory_bytes": 1 << 20},
            "making the trace takes more than 0.000977 GiB of memory; use",
        ),
        ({"most_seconds": 0.0}, "making the trace takes more than 0 s; use `tracer replay`"),
    ],
)
def test_a_trace_that_takes_too_much_is_given_up(limits: dict[str, float], said: str) -> None:
    taken = Uploads(lambda trace: None, **limits)  # type: ignore[arg-type]
    send(taken, "a.pcap", CAPTURE)
    taken._make({f"client={taken._files[1].path}": taken._files[1]})
    assert taken.making().state == "failed"
    assert taken.making().text.startswith(said)
    assert list((taken._folder / "traces").iterdir()) == []
    assert taken._process is None
    taken.close()


def test_a_file_that_expands_too_far_is_refused(uploads: Uploads, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collector.queries.captured.LIMITED", InputLimits(ratio=10, expanded_bytes=100_000))
    again = pcap([(0, b"\x02" * 12 + b"\x08\x00" + bytes(60))] * 20_000)
    said = send(uploads, "bomb.pcap.gz", gzip.compress(again))
    assert said.startswith("bomb.pcap.gz expands to ")
    assert "times its size" in said
    assert uploads.making().state == "idle"


def test_only_the_viewers_own_page_may_upload_and_only_in_pieces(small_trace: TraceView) -> None:
    revisions, taken = make_viewer(small_trace, Access())
    client = Client(revisions)
    local = "http://localhost"
    assert client.post("/uploads?name=a", base_url=local).status_code == 403
    begun = client.post("/uploads?name=a", base_url=local, headers=PAGE)
    assert begun.status_code == 200
    number = begun.json["number"]  # type: ignore[index]
    for query, length in (("", 1), ("?offset=x", 1), ("?offset=-1", 1), ("?offset=0", PIECE_BYTES + 1)):
        answer = client.put(f"/uploads/{number}{query}", base_url=local, headers=PAGE, data=b"x" * length)
        assert answer.status_code == 400
    assert client.post("/uploads/trace", base_url=local, headers=PAGE, json={"../x": "a"}).status_code == 400
    taken.close()


def test_beyond_loopback_uploads_need_the_token(small_trace: TraceView) -> None:
    revisions, taken = make_viewer(small_trace, Access("secret"))
    assert Client(revisions).post("/uploads?name=a", headers=PAGE).status_code == 401
    taken.close()


DROP = """names => {
    const data = new DataTransfer();
    for (const [name, bytes] of names) data.items.add(new File([new Uint8Array(bytes)], name));
    for (const type of ["dragover", "drop"])
        document.dispatchEvent(new DragEvent(type, { dataTransfer: data, bubbles: true, cancelable: true }));
}"""


@pytest.mark.browser
def test_captures_are_dropped_confirmed_and_shown(page: Page) -> None:
    with serving(None) as url, leaving(page):
        page.goto(url)
        expect(page.locator("#start")).to_contain_text("tracer record")
        expect(page.locator("#upload-choose")).to_be_enabled()
        files = [(path.name, list(path.read_bytes())) for path in sorted(SAMPLE.glob("*.pcapng"))[:3]]
        page.evaluate(DROP, [*files, ("notes.pcap", list(b"just text"))])
        expect(page.locator(".upload-file")).to_have_count(4)
        expect(page.locator(".upload-file .warning")).to_contain_text("notes.pcap is")
        hosts = page.locator(".upload-file input")
        expect(hosts).to_have_count(3)
        hosts.nth(0).fill("desk")
        page.locator("#upload-make").click()
        expect(page.locator("#lanes .lane b").first).to_have_text("desk", timeout=60_000)
        expect(page.locator("#facts")).to_contain_text("3 hosts")
        page.keyboard.press("o")
        expect(page.locator("#upload")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.locator("#upload")).to_be_hidden()
