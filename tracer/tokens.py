"""An operator's secret for a service of ours: from a file, the environment, or a prompt.

A token on the command line is refused, for everybody on the machine may read command lines; it is overwritten in this
process's (`/proc/PID/cmdline`, which `ps` shows) if the system permits it.

A collector without a token generates one and stores it where agents of the same user on the same machine find it.
"""

import ctypes
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from tracer.errors import InputError
from tracer.private_files import write_durably

VARIABLE = "TWINTAP_TOKEN"
COLLECTOR = "collector"
ASK = "-"
"""As a token: ask for it."""
PORTS = {"http": 80, "https": 443}
_ARG_START = 48 - 1
"""Field of /proc/PID/stat, see proc_pid_stat(5)."""


def token_options(purpose: str, variable: str = VARIABLE) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add `--token` and `--token-file`; the command takes both, and gives them to `read_token`, as `variable`."""
    plain = click.option("--token", metavar="-", help=f"{purpose} `-` asks for it.  [default: ${variable}]")
    file = click.option(
        "--token-file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Read the token from the first line of FILE.",
    )
    return lambda command: file(plain(command))


def read_token(token: str | None, file: Path | None, variable: str = VARIABLE) -> str:
    """The token that was given by option, file, environment or prompt; "" if none was.

    Raises: InputError for a file that cannot be read or is empty, for two tokens, one on the command line, or one that
        no header of HTTP can carry.
    """
    return _of_header(_read(token, file, variable))


def _of_header(token: str) -> str:
    """The token. Raises: InputError if it is not of printable ASCII (RFC 9110 §5.5)."""
    if not (token.isascii() and token.isprintable()):
        raise InputError("the token holds characters that no HTTP header can carry", "use one of printable ASCII")
    return token


def _read(token: str | None, file: Path | None, variable: str) -> str:
    if token and file:
        raise InputError("--token and --token-file are both given", "give one of them")
    if file is not None:
        return first_line(file, "token")
    if token == ASK:
        return str(click.prompt("token", hide_input=True, err=True)).strip()
    if token:
        hidden = hide_in_command_line(token)
        shown = "could read this one for a moment" if hidden else "can read this one"
        remedy = f"make another, and give it by --token-file, {variable}, or --token -, which asks for it"
        raise InputError(f"a token on the command line is no secret, others on this machine {shown}", remedy)
    return os.environ.get(variable, "").strip()


def make_up_token() -> str:
    """A new token."""
    return secrets.token_urlsafe(24)


def hide_in_command_line(secret: str) -> bool:
    """Overwrite a word, or the value of an option, in this process's command line with `x`; whether it could be.

    The words lie in this process's own memory; they are overwritten only where it holds what the kernel says.
    """
    wanted = secret.encode()
    try:
        start = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[_ARG_START - 2])
        words = Path("/proc/self/cmdline").read_bytes()
    except (OSError, ValueError, IndexError):
        return False
    place = words.find(wanted + b"\0")
    if not start or place < 0 or ctypes.string_at(start, len(words)) != words:
        return False
    while place >= 0:
        ctypes.memset(start + place, ord("x"), len(wanted))
        place = words.find(wanted + b"\0", place + 1)
    return wanted + b"\0" not in Path("/proc/self/cmdline").read_bytes()


def left_token(port: int) -> str:
    """The token of this user's collector at a port of this machine; "" if it left none."""
    try:
        return _place(port).read_text().strip()
    except (OSError, UnicodeDecodeError, RuntimeError):
        return ""


def left_token_for(url: str) -> str:
    """The token that the collector at a URL left, if it is this user's and on this machine; else ""."""
    parsed = urlsplit(url)
    is_here = parsed.hostname in ("localhost", "127.0.0.1", "::1")
    return left_token(parsed.port or PORTS.get(parsed.scheme, 0)) if is_here else ""


def leave_token(port: int, token: str, service: str = COLLECTOR) -> Path:
    """Leave a token of a service at a port for this user on this machine; where.

    Raises: OSError.
    """
    place = _place(port, service)
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_durably(place, token + "\n")
    return place


def take_back(place: Path, token: str) -> None:
    """Remove a token that was left, unless another replaced it."""
    try:
        if place.read_text().strip() == token:
            place.unlink()
    except OSError:
        return


def first_line(file: Path, what: str) -> str:
    """The first line of a file that holds a token or an address. Raises: InputError if there is none."""
    try:
        lines = file.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise InputError(f"the {what} file {file} cannot be read: {reason}", "check the path") from None
    found = lines[0].strip() if lines else ""
    if not found:
        raise InputError(f"the {what} file {file} is empty", f"write the {what} into its first line")
    return found


def _place(port: int, service: str = COLLECTOR) -> Path:
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "twintap" / f"{service}-{_network()}{port}.token"


def _network() -> str:
    """The network namespace to which this process's ports belong."""
    try:
        return f"{os.stat('/proc/self/ns/net').st_ino}-"
    except OSError:
        return ""
