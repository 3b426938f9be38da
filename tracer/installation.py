"""How this program was installed, and so what installs a part that is missing here.

| installed as | found by | the missing part comes by |
|---|---|---|
| Debian package | the environment is `/usr/lib/twintap` | `apt install ./twintap_VERSION_ARCH.deb` |
| pipx, uv | their file in the environment | the same program |
| checkout, wheel in a folder | `direct_url.json` (PEP 610) | `pip`, with the place that it came from |
| single file, index | neither | `pip install 'twintap[EXTRA]'` |

Within a virtual environment the command names that environment's `pip`, if it has one: the shell's may be another.
"""

import json
import platform
import shlex
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit

DEBIAN_PREFIX = "/usr/lib/twintap"
DEBIAN_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def install_command(extra: str, prefix: str | None = None, found: Distribution | None = None) -> str:
    """The command that installs an extra, as `pip install 'twintap[viewer]'`.

    Arguments: `prefix` of the environment and the installed distribution; by default those that run.
    """
    prefix = sys.prefix if prefix is None else prefix
    found = found or _distribution()
    if prefix == DEBIAN_PREFIX:
        machine = platform.machine()
        version = found.version if found else "*"
        return f"apt install ./twintap_{version}_{DEBIAN_ARCHITECTURES.get(machine, machine)}.deb"
    if (Path(prefix) / "pipx_metadata.json").exists():
        return f"pipx install --force {_requirement(found, extra)}"
    if (Path(prefix) / "uv-receipt.toml").exists():
        return f"uv tool install --force {_requirement(found, extra)}"
    return f"{_pip(prefix)} install {_requirement(found, extra)}"


def _distribution() -> Distribution | None:
    try:
        return distribution("twintap")
    except PackageNotFoundError:
        return None


def _pip(prefix: str) -> str:
    own = Path(prefix) / "bin" / "pip"
    return shlex.quote(str(own)) if prefix != sys.base_prefix and own.exists() else "pip"


def _requirement(found: Distribution | None, extra: str) -> str:
    """What to ask for, with the options that find it."""
    text = found.read_text("direct_url.json") if found else None
    origin = json.loads(text) if text else {}
    url = urlsplit(str(origin.get("url", "")))
    path = Path(unquote(url.path))
    if url.scheme != "file":
        return f"'twintap[{extra}]'"
    if "dir_info" in origin:
        editable = "-e " if origin["dir_info"].get("editable") else ""
        return f"{editable}{shlex.quote(f'{path}[{extra}]')}"
    return f"--find-links {shlex.quote(str(path.parent))} 'twintap[{extra}]'"
