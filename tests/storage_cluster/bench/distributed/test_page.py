"""The controller's page in a browser: it shows drivers, takes a file and shows results, without errors."""

import contextlib
import http.server
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

ROOT = Path(__file__).resolve().parents[4]
SECONDS = 30
WORKLOAD = """
name = "from the page"
[[stage]]
name = "main"
[[stage.work]]
workers = 2
total_ops = 500
operations = [{ kind = "write", containers = "c(1)", objects = "s(1,100)", sizes = "c(9)B" }]
"""


@contextlib.contextmanager
def start(*argv: str) -> Iterator[str]:
    """A service of its own process; the address in what it says first."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    running = subprocess.Popen(
        [sys.executable, "-m", *argv], stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT
    )
    assert running.stdout
    try:
        line = running.stdout.readline()
        found = re.search(r"http://\S+?(?=/? )|^\d+$", line)
        assert found, line
        yield found[0]
    finally:
        running.terminate()
        running.communicate(timeout=SECONDS)


class _KnowsAll(http.server.BaseHTTPRequestHandler):
    """A viewer whose trace has every request that it is asked about."""

    def do_GET(self) -> None:
        ids = parse_qs(urlsplit(self.path).query)["id"]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"trace": "shop", "known": ids}).encode())

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextlib.contextmanager
def viewer_of_all() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _KnowsAll) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def look_at_charts(page: Page) -> None:
    """All charts are drawn; a click in one shows the slowest requests of that time."""
    for chart in ("#rate", "#latency", "#bytes"):
        expect(page.locator(f"{chart} path.curve, {chart} circle.dot").first).to_be_attached()
    assert page.locator("#latency rect").count() > 0
    page.locator("#latency").click()
    expect(page.locator("#interval")).to_contain_text("of those that ended from", timeout=SECONDS * 1000)
    page.get_by_role("button", name="whole run").click()
    expect(page.locator("#interval")).to_contain_text("of the whole run", timeout=SECONDS * 1000)


def rerun_pause_and_stop(page: Page) -> None:
    """The run once more with more to do, paused, continued and stopped from the page."""
    before = page.url
    page.get_by_role("button", name="Run again").click()
    page.locator('#parameters input[name="main.main.workers"]').fill("5")
    page.locator('#parameters input[name="main.main.total_ops"]').fill("1000000")
    page.get_by_role("button", name="Run with these").click()
    expect(page.locator("#title")).to_have_text("from the page — running", timeout=SECONDS * 1000)
    assert page.url != before
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#title")).to_have_text("from the page — paused", timeout=SECONDS * 1000)
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("#title")).to_have_text("from the page — running", timeout=SECONDS * 1000)
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#title")).to_contain_text("— cancelled", timeout=SECONDS * 1000)
    expect(page.locator("#marks")).to_contain_text("paused", timeout=SECONDS * 1000)
    expect(page.locator("#report")).to_contain_text("main.workers=5", timeout=SECONDS * 1000)


@pytest.mark.browser
def test_a_run_from_the_page(chromium: Browser, tmp_path: Path) -> None:
    file = tmp_path / "w.toml"
    file.write_text(WORKLOAD)
    driver = ("tracer", "bench", "driver", "--listen", "127.0.0.1:0", "--name", "d1", "--data", str(tmp_path / "d1"))
    with start("benchmarks.instant_server", "0") as port, start(*driver) as url, viewer_of_all() as viewer:
        controller = ("tracer", "bench", "controller", "--listen", "127.0.0.1:0", "--driver", url, "--viewer", viewer)
        with start(*controller, "--data", str(tmp_path / "runs")) as page_url:
            page, faults = chromium.new_page(), list[str]()
            page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
            page.on("pageerror", lambda error: faults.append(str(error)))
            page.goto(page_url)
            expect(page.locator("#drivers .alive")).to_have_text("d1", timeout=SECONDS * 1000)
            page.locator("#file").set_input_files(file)
            page.locator("#settings").fill("main.workers=3")
            page.locator("#auth").fill(f"http://127.0.0.1:{port}/auth/v1.0")
            page.locator("#user").fill("u")
            page.locator("#key").fill("k")
            page.get_by_role("button", name="Run", exact=True).click()
            expect(page.locator("#title")).to_have_text("from the page — done", timeout=SECONDS * 1000)
            expect(page.locator("#report")).to_contain_text("with main.workers=3", timeout=SECONDS * 1000)
            expect(page.locator("#counts")).to_contain_text("500 operations, 0 failed")
            page.locator("#form").select_option("cosbench")
            expect(page.locator("#report")).to_contain_text("s1-main,write,write,500,4500,", timeout=SECONDS * 1000)
            first = page.url.rpartition("#")[2]
            page.get_by_role("button", name="Run", exact=True).click()
            expect(page.locator("#other option")).to_have_count(2, timeout=SECONDS * 1000)
            page.locator("#other").select_option(first)
            expect(page.locator("#verdict")).to_contain_text("Comparable.", timeout=SECONDS * 1000)
            expect(page.locator("#differences")).to_contain_text("throughput", timeout=SECONDS * 1000)
            page.locator("#other").select_option("")
            page.locator("#form").select_option("text")
            link = page.locator("#slowest a").first
            expect(link).to_have_attribute("href", re.compile(rf"^{viewer}/transaction/tx0123456789abcdef01234-"))
            expect(page.locator("#packets")).to_have_text(
                re.compile(rf"^(\d+) of \1 have their packets in the trace shop, open at {viewer}\.$")
            )
            look_at_charts(page)
            rerun_pause_and_stop(page)
            assert faults == []
            file.write_text("name = 1")
            page.locator("#file").set_input_files(file)
            page.get_by_role("button", name="Run", exact=True).click()
            expect(page.locator("#error")).to_contain_text("w.toml", timeout=SECONDS * 1000)
