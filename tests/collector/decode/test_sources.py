"""Which captures belong to which host."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from collector.decode.host_capture import HostSource
from collector.decode.sources import command_of, host_sources, samples_of, write_command
from collector.trace.model import CommandInfo
from tracer.errors import InputError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (
        "a.pcap",
        "b.pcapng.gz",
        "x=y.pcap",
        "notes.txt",
        "captures/client/client-000002.pcapng",
        "captures/client/client-000001.pcapng",
        "captures/client/agent.log",
        "captures/proxy/dump.pcap10",
        "captures/proxy/dump.pcap2",
        "captures/proxy/dump.pcap",
        "captures/loose.cap",
        "captures/empty/readme.md",
        "nothing/readme.md",
        "trace/trace.json",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def source(host: str | None, *files: str) -> HostSource:
    return HostSource(host, tuple(Path(file) for file in files))


CLIENT = source("client", "captures/client/client-000001.pcapng", "captures/client/client-000002.pcapng")
PROXY = source("proxy", *(f"captures/proxy/dump.pcap{end}" for end in ("", "2", "10")))
CASES = [
    (["a.pcap", "b.pcapng.gz"], [source(None, "a.pcap"), source(None, "b.pcapng.gz")]),
    (["web=a.pcap", "web=b.pcapng.gz"], [source("web", "a.pcap"), source("web", "b.pcapng.gz")]),
    (["x=y.pcap"], [source(None, "x=y.pcap")]),
    (
        ["captures"],
        [*(replace(each, folder=Path("captures")) for each in (CLIENT, PROXY)), source(None, "captures/loose.cap")],
    ),
    (["web=captures/client"], [source("web", *(str(file) for file in CLIENT.files))]),
]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("arguments", "expected"), CASES, ids=lambda value: " ".join(map(str, value))[:40])
def test_host_sources(arguments: list[str], expected: list[HostSource]) -> None:
    assert host_sources(arguments) == tuple(expected)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("missing.pcap", "missing.pcap: no such file"),
        ("web=missing.pcap", "missing.pcap: no such file"),
        ("nothing", "nothing holds no captures"),
        ("web=nothing", "nothing holds no captures"),
        ("trace", "is a trace already; look at it with: tracer report trace"),
    ],
)
def test_what_is_no_source_is_named(argument: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        host_sources([argument])


COMMAND = CommandInfo(("swift", "upload", "a b"), "client", 10, 20, 3)


def test_the_command_of_a_recording_comes_back(folder: Path) -> None:
    write_command(folder / "captures", COMMAND)
    assert command_of(["captures"]) == COMMAND
    assert host_sources(["captures"])[0].host == "client", "its note is not taken for a capture"


@pytest.mark.parametrize("arguments", [["captures"], ["a.pcap"], ["captures", "a.pcap"], ["client=captures"]])
def test_without_a_note_there_is_no_command(folder: Path, arguments: list[str]) -> None:
    assert command_of(arguments) is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"argv": [], "what": 1}'])
def test_a_damaged_note_is_reported(folder: Path, text: str) -> None:
    (folder / "captures" / "command.json").write_text(text)
    with pytest.raises(InputError, match=r"command\.json is damaged"):
        command_of(["captures"])


@pytest.mark.parametrize("name", ["x" * 300, "nul\0", "\udce9" * 3])
def test_a_name_that_no_file_can_have_is_a_hosts_or_no_file(name: str, tmp_path: Path) -> None:
    capture = tmp_path / "a.pcap"
    capture.write_bytes(b"")
    assert [source.host for source in host_sources([f"{name}={capture}"])] == [name]
    assert command_of([f"{name}={capture}"]) is None
    assert samples_of([f"{name}={capture}"]) is None
    with pytest.raises(InputError, match="no such file"):
        host_sources([name])


def test_a_folder_that_may_not_be_read_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(InputError, match=r"this user may not read it; run as its owner"):
        host_sources([str(folder)])
