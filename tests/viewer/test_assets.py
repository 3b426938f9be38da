"""The page's scripts as modules: which folder imports which, what a page loads, and the modules' own tests."""

import json
import math
import os
import re
import shutil
import subprocess
from graphlib import TopologicalSorter
from pathlib import Path

import numpy as np
import pytest

from collector.queries import TraceView
from viewer import constants, page_shell
from viewer.app import create_app
from viewer.binary import encode
from viewer.windows import overview_message, window_message

ASSETS = Path(__file__).parents[2] / "viewer" / "assets"
TESTS = Path(__file__).parent / "modules"
NODE = shutil.which("node")
FLOORS = ("data", "draw", "page", "app")
"""A module imports only from its own folder and from those before it."""
STATEMENT = re.compile(r'^import\s[^;]*?from "([^"]+)";', re.MULTILINE)
GLOBAL = re.compile(r"\bwindow\.(\w+) = ")
MODULES = sorted(path.relative_to(ASSETS).as_posix() for floor in FLOORS for path in (ASSETS / floor).glob("*.js"))


def imports_of(module: str, script: str) -> list[str]:
    """The modules that a script imports, as paths within the assets."""
    folder = ASSETS / Path(module).parent
    return [(folder / name).resolve().relative_to(ASSETS).as_posix() for name in STATEMENT.findall(script)]


def upward_imports(module: str, script: str) -> list[str]:
    """The imports of a script that lead to a higher folder."""
    floor = FLOORS.index(module.split("/", maxsplit=1)[0])
    return [name for name in imports_of(module, script) if FLOORS.index(name.split("/")[0]) > floor]


def test_an_import_of_a_higher_folder_is_found() -> None:
    script = (
        'import {\n  a, b,\n} from "../app/main.js";\nimport { x } from "./y.js";\nimport { z } from "../data/z.js";\n'
    )
    assert imports_of("draw/a.js", script) == ["app/main.js", "draw/y.js", "data/z.js"]
    assert upward_imports("draw/a.js", script) == ["app/main.js"]


@pytest.mark.parametrize("module", MODULES)
def test_no_module_imports_from_a_higher_folder(module: str) -> None:
    script = (ASSETS / module).read_text()
    assert upward_imports(module, script) == []
    assert script.count("\nimport ") == len(STATEMENT.findall(script)), "an import that this test does not read"


def test_modules_do_not_import_each_other_in_circles() -> None:
    graph = {module: imports_of(module, (ASSETS / module).read_text()) for module in MODULES}
    assert len(list(TopologicalSorter(graph).static_order())) == len(MODULES) > 30
    assert {name for names in graph.values() for name in names} <= set(MODULES)


def test_only_the_entry_puts_anything_into_the_global_object() -> None:
    """What tests and benchmarks read, and what Dash calls."""
    scripts = {module: (ASSETS / module).read_text() for module in MODULES}
    globals_set = {(module, name) for module in MODULES for name in GLOBAL.findall(scripts[module])}
    assert globals_set == {
        ("app/main.js", "twintap"),
        ("app/days.js", "twintap"),
        ("app/callbacks.js", "dash_clientside"),
        ("app/store.js", "dash_stores"),
        ("data/server.js", "fetch"),
    }


@pytest.mark.parametrize(("path", "entry"), [("/", "main.js"), ("/pages/latency", "pages.js")])
def test_a_page_loads_one_script_and_one_style_sheet_beside_dash(small_trace: TraceView, path: str, entry: str) -> None:
    client = create_app(small_trace).server.test_client()
    page = client.get(path, base_url="http://localhost").text
    assert re.findall(r'<script type="module" src="([^"]+)">', page) == [page_shell.url_of(entry)]
    assert re.findall(r'<link rel="stylesheet" href="([^"]+)">', page) == [page_shell.url_of(page_shell.STYLES)]
    classic = re.findall(r'<script src="([^"?]*)', page)
    assert [url for url in classic if "assets/" in url] == [url for url in classic if "plotly-cartesian" in url]
    for name in (entry, page_shell.STYLES):
        answer = client.get(page_shell.url_of(name), base_url="http://localhost")
        assert (answer.status_code, answer.text) == (200, page_shell.joined_text(name))
        assert "immutable" in answer.headers["Cache-Control"]
    stale = page_shell.url_of(entry).replace("joined/", "joined/0")
    assert client.get(stale, base_url="http://localhost").status_code == 404


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_and_exports_in_the_forms_that_are_joined(module: str) -> None:
    script = (ASSETS / module).read_text()
    assert len(page_shell.IMPORT.findall(script)) == len(re.findall(r"^import\b", script, re.MULTILINE))
    assert len(page_shell.EXPORT.findall(script)) == len(re.findall(r"^export\b", script, re.MULTILINE))
    for names, path in page_shell.IMPORT.findall(script):
        source = ((ASSETS / module).parent / path).read_text()
        exported = {name for _, name in page_shell.EXPORT.findall(source)}
        assert {name.strip() for name in names.split(",") if name.strip()} <= exported, path


@pytest.mark.parametrize("entry", sorted(page_shell.ENTRIES))
def test_a_joined_script_has_each_module_once_after_what_it_imports(entry: str) -> None:
    order = page_shell.modules_in_order(page_shell.ENTRIES[entry])
    assert len(set(order)) == len(order)
    for module in order:
        imported = imports_of(module, (ASSETS / module).read_text())
        assert all(order.index(each) < order.index(module) for each in imported), module
    text = page_shell.joined_text(entry)
    assert not re.search(r"^(import|export)\b", text, re.MULTILINE)
    assert "module_draw_scene" in text or entry in ("pages.js", "days.js")


def test_constants_of_the_page_are_those_of_the_server() -> None:
    assert constants.FILE.read_text() == constants.constants_script(), "run: python -m viewer.constants"


@pytest.mark.skipif(NODE is None, reason="no Node.js (apt install nodejs) for the tests of modules")
def test_the_modules_pass_their_own_tests(small_trace: TraceView, tmp_path: Path) -> None:
    """Those in `tests/viewer/modules`, which decode messages that the server has encoded."""
    columns = {
        "small": np.array([0, 255], np.uint8),
        "negative": np.array([-1, 7, 1 << 30], np.int32),
        "times": np.array([np.nan, -0.5, 2.0**52 + 1]),
        "none": np.array([], np.uint16),
    }
    _write(tmp_path, "by_hand", encode({"mode": "arrows", "from": -5, "to": 1 << 52, "name": "ü"}, columns))
    _write(tmp_path, "window", window_message(small_trace, 0, small_trace.duration_ns, [], raw=False))
    _write(tmp_path, "overview", overview_message(small_trace))
    assert NODE is not None
    run = subprocess.run(
        [NODE, "--test", str(TESTS)],
        env={**os.environ, "TWINTAP_MESSAGES": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert int(re.findall(r"^# pass (\d+)", run.stdout, re.MULTILINE)[0]) > 50
    assert re.findall(r"^# skipped (\d+)", run.stdout, re.MULTILINE) == ["0"]


def _write(folder: Path, name: str, message: bytes) -> None:
    """A message, and what is in it as numpy reads it; null for NaN."""
    size = int.from_bytes(message[:4], "little")
    header = json.loads(message[4 : 4 + size])
    columns = {}
    for column in header.pop("columns"):
        found = np.frombuffer(message, "<" + column["dtype"], column["length"], 4 + size + column["offset"])
        values = [None if isinstance(value, float) and math.isnan(value) else value for value in found.tolist()]
        columns[column["name"]] = {"array": constants.ARRAYS[column["dtype"]], "values": values}
    (folder / f"{name}.bin").write_bytes(message)
    (folder / f"{name}.json").write_text(json.dumps({"header": header, "columns": columns}))
