"""The notebooks of docs/notebooks run, cell by cell, as in a kernel; `--regenerate` writes their outputs."""

import ast
import contextlib
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def outputs_of(notebook: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """What each code cell prints, and the value of its last expression as text; figures are not kept."""
    names: dict[str, Any] = {}
    return [_run("".join(cell["source"]), names) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def _run(source: str, names: dict[str, Any]) -> list[dict[str, Any]]:
    body, printed, value = ast.parse(source), io.StringIO(), None
    last = body.body.pop() if body.body and isinstance(body.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(printed):
        exec(compile(body, "cell", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    found: list[dict[str, Any]] = []
    if printed.getvalue():
        found.append({"output_type": "stream", "name": "stdout", "text": printed.getvalue()})
    if value is not None and type(value).__name__ != "Figure":
        found.append(
            {"output_type": "execute_result", "execution_count": None, "metadata": {},
             "data": {"text/plain": str(value)}}
        )  # fmt: skip
    return found


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, regenerate: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    notebook = json.loads(path.read_text(encoding="utf-8"))
    with pl.Config():  # what a notebook sets ends with it
        found = outputs_of(notebook)
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    if regenerate:
        for cell, outputs in zip(cells, found, strict=True):
            cell["outputs"] = outputs
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    assert [cell["outputs"] for cell in cells] == found


def test_there_are_three() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["clocks", "slow-put", "space-time"]
