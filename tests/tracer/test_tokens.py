"""Tokens: by file, environment or prompt, and hidden where they came by the command line."""

import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tracer import tokens
from tracer.errors import InputError

SHOW = """
import sys, pathlib
from tracer.errors import InputError
from tracer.tokens import read_token
try:
    read_token(sys.argv[2], None)
except InputError as error:
    print(pathlib.Path('/proc/self/cmdline').read_bytes().split(b'\\0')[-3:], error)
"""


def test_a_file_holds_it_in_its_first_line(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc\nmore\n")
    assert tokens.read_token(None, tmp_path / "token") == "abc"


@pytest.mark.parametrize(("content", "said"), [("", "is empty"), ("\n", "is empty"), (None, "cannot be read")])
def test_a_file_without_one_is_one_line(tmp_path: Path, content: str | None, said: str) -> None:
    if content is not None:
        (tmp_path / "token").write_text(content)
    with pytest.raises(InputError, match=said):
        tokens.read_token(None, tmp_path / "token")


def test_two_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="both given"):
        tokens.read_token("abc", tmp_path / "token")


def test_the_environment_is_asked_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tokens.VARIABLE, "abc")
    assert tokens.read_token(None, None) == "abc"
    monkeypatch.delenv(tokens.VARIABLE)
    assert tokens.read_token(None, None) == ""


@pytest.mark.parametrize("secret", ["€uro", "é", "a\nb", "a\tb"])
def test_one_that_no_header_can_carry_is_refused(secret: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWINTAP_TOKEN", secret)
    with pytest.raises(InputError, match="no HTTP header can carry; use one of printable ASCII"):
        tokens.read_token(None, None)


def test_a_line_end_behind_it_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWINTAP_TOKEN", "abc\n")
    assert tokens.read_token(None, None) == "abc"


def test_a_dash_asks_and_shows_nothing_of_it() -> None:
    @click.command()
    @tokens.token_options("It is a test's.")
    def command(token: str | None, token_file: Path | None) -> None:
        assert tokens.read_token(token, token_file) == "abc"

    result = CliRunner().invoke(command, ["--token", "-"], input="abc\n")
    assert result.exit_code == 0
    assert "abc" not in result.output


@pytest.mark.skipif(sys.platform != "linux", reason="NOT TESTED: only Linux shows and overwrites command lines so")
@pytest.mark.parametrize("word", ["S3cretToken", "é-ütf8"])
def test_on_the_command_line_it_is_refused_and_hidden(word: str) -> None:
    argv = [sys.executable, "-c", SHOW, "--token", word]
    said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    shown, _, refused = said.partition("] ")
    assert shown == f"[b'--token', b'{'x' * len(word.encode())}', b''"
    assert refused.startswith(
        "a token on the command line is no secret, others on this machine could read this one for"
    )
    assert word not in refused


def test_a_collector_leaves_its_own_for_agents_of_this_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    place = tokens.leave_token(8710, "abc")
    assert place.stat().st_mode & 0o777 == 0o600
    assert place.parent.stat().st_mode & 0o777 == 0o700
    assert tokens.left_token_for("http://127.0.0.1:8710") == "abc"
    assert tokens.left_token_for("http://localhost:8710/") == "abc"
    assert tokens.left_token_for("http://10.0.0.1:8710") == ""
    assert tokens.left_token_for("http://127.0.0.1:8711") == ""
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(tokens, "_network", lambda: "another-")
        assert tokens.left_token(8710) == "", "its port there is another service's"
    tokens.take_back(place, "another")
    assert place.exists()
    tokens.take_back(place, "abc")
    assert not place.exists()
