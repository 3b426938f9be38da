"""What an assistant gets: by the protocol, from the command as an assistant starts it; and each tool's answer."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from collector.analysis import analyse
from collector.assistants import tools
from collector.assistants.server import NAMES
from collector.assistants.tools import TraceTools
from collector.decode.sources import host_sources
from tests.helpers.script_traces import write_script_trace
from tracer.errors import InputError

BUNDLED = Path(__file__).resolve().parents[3] / "captures" / "bench-2-puts"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = str(tmp_path_factory.mktemp("assistants") / "bench")
    analyse(host_sources([str(BUNDLED)]), place)
    return place


@pytest.fixture(scope="module")
def assistant(trace: str) -> TraceTools:
    return TraceTools(trace)


def ask(trace: str, question: Callable[[Client], Awaitable[Any]]) -> Any:
    """What a client of the SDK gets from `tracer mcp`, which it starts."""

    async def talk() -> Any:
        command = StdioServerParameters(command=sys.executable, args=["-m", "tracer", "mcp", trace])
        async with Client(stdio_client(command)) as client:
            return await question(client)

    return asyncio.run(talk())


def test_an_assistant_finds_the_tools_uses_them_and_sees_what_is_wrong(trace: str) -> None:
    async def question(client: Client) -> Any:
        listed = await client.list_tools()
        calls = [("report", {}), ("query", {"sql": "DROP TABLE requests"}), ("find", {"search": "put", "limit": 2})]
        return listed, [await client.call_tool(name, arguments) for name, arguments in calls]

    listed, (report, wrong, found) = ask(trace, question)
    assert tuple(each.name for each in listed.tools) == NAMES
    assert all(each.annotations.read_only_hint and each.description for each in listed.tools)
    assert "4 requests took" in report.content[0].text
    assert (wrong.is_error, report.is_error) == (True, False)
    assert "only reads" in wrong.content[0].text or "change" in wrong.content[0].text
    assert found.content[0].text.startswith("3 requests are found; the slowest:")


def test_requests_are_found_and_explained(assistant: TraceTools, tmp_path: Path) -> None:
    head, rows = assistant.find("PUT", limit=2).split("\n", 1)
    assert head == "3 requests are found; the slowest:"
    found = json.loads(rows)
    assert [row["number"] for row in found] == ["#2", "#3"]
    assert found[0]["duration_ms"] > found[1]["duration_ms"]
    assert assistant.find("nowhere") == "no request is found"
    assert "against" in assistant.why("#2", against="#3")
    assert "swift-object" in assistant.compare("path:object", "path:/auth")
    assert "server:" in assistant.compare_hosts("storage1", "storage2")
    with pytest.raises(InputError, match="others of its class"):
        assistant.why("#1")


def test_what_would_be_otherwise(assistant: TraceTools) -> None:
    said = assistant.what_if(quorum=1, own_time={"proxy": 0.5})
    assert said.startswith("With a quorum of 1, own time of proxy × 0.5\n")
    assert "PUT container" in said
    assert "GET" not in assistant.what_if(no_loss=True, search="PUT")
    with pytest.raises(InputError, match="there is no host nowhere"):
        assistant.what_if(as_fast={"nowhere": "proxy"})


def test_a_report_of_what_a_search_finds(assistant: TraceTools) -> None:
    assert "3 requests took" in assistant.report("PUT")
    assert "\x1b" not in assistant.report()


def test_rows_and_packets(assistant: TraceTools) -> None:
    assert json.loads(assistant.query("SELECT count(*) AS n FROM requests")) == [{"n": 37}]
    assert json.loads(assistant.query("SELECT count(*) AS n FROM requests", search="path:/auth/v1.0"))[0]["n"] == 2
    assert "… and more than these 3 rows" in assistant.query("FROM packets", limit=3)
    packets = json.loads(assistant.packets("slowest").split("\n…")[0])
    assert [each["sent"] for each in packets] == sorted(each["sent"] for each in packets)
    assert packets[0]["kind"] == "syn"
    assert assistant.sequence_diagram("#1").startswith("sequenceDiagram")
    assert "requests: each row is" in assistant.tables()
    for limit in (0, 1_001):
        with pytest.raises(InputError, match="is not from 1 to"):
            assistant.query("FROM packets", limit=limit)


def test_an_answer_is_cut_and_says_so(assistant: TraceTools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "MOST_CHARACTERS", 100)
    text, cut = assistant.report().rsplit("\n", 1)
    assert len(text) == 100
    assert cut.startswith("… cut here: ")
    assert cut.endswith("more characters; ask for less at once")


def test_a_trace_that_is_replaced_is_opened_again(tmp_path: Path) -> None:
    script = "client:40000 > proxy:8080\n0 > syn\n50 < syn_ack\n100 > 0:100 GET /a\n300 < 0:50 200"
    write_script_trace(str(tmp_path / "t"), script)
    assistant = TraceTools(str(tmp_path / "t"))
    assert assistant.find("put") == "no request is found"
    meta = tmp_path / "t" / "trace.json"
    write_script_trace(str(tmp_path / "t"), script.replace("GET", "PUT"))
    meta.write_text(meta.read_text().replace('"created_ns": 0', '"created_ns": 1'))
    assert assistant.find("put").startswith("1 request is found")


def test_no_trace_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no trace"):
        TraceTools(str(tmp_path))
