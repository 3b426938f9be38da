"""Debian packages by `dpkg-deb`, from a plain tree: `twintap-agent`, and `twintap`, which holds the agent, too.

    /usr/bin/tracer, twintap-agent        the command, and the static agent that `tracer record --ssh` finds
    /usr/lib/twintap                      a virtual environment of Debian's Python, with all packages in it
    /usr/lib/systemd/system               the units of packaging/systemd; none is enabled
    /etc/twintap/*.env                    their options: conffiles, which an upgrade keeps

The packages of others are within, of the versions that were tested, so only what Debian has is needed beside it. One
of the two is installed at a time: each takes the other's place, with its settings and data.

Invariant: in a tree that was staged twice from the same files, every byte, mode and time is the same.
"""

import gzip
import os
import shutil
import subprocess
from email.utils import formatdate
from importlib.metadata import EntryPoint, distribution, version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "packaging" / "debian"
UNITS = ROOT / "packaging" / "systemd"
PREFIX = "usr/lib/twintap"
PARTS = {"twintap-agent": ("agent",), "twintap": ("agent", "collector")}
"""Package to the parts that have a unit in it."""
USERS = {"agent": "twintap", "collector": "twintap-collector"}
OTHER = {"twintap-agent": "twintap", "twintap": "twintap-agent"}
PYTHONS = {"twintap-agent": range(11, 16), "twintap": range(11, 12)}
"""Minor versions of Python 3: an agent's one extension is for all from 3.11 on, the analysis has packages for one."""
COMPRESSION = {"twintap-agent": ("-Zxz",), "twintap": ("-Zzstd", "-z6")}
"""700 MB take xz minutes of a processor, zstd seconds; Debian 12's dpkg reads it."""
DEPENDS = {
    "twintap-agent": "python3 (>= 3.11), adduser, libc6 (>= 2.34), libgcc-s1",
    "twintap": "python3 (>= 3.11), python3 (<< 3.12), adduser, libc6 (>= 2.34), libgcc-s1, libstdc++6, zlib1g",
}
DESCRIPTION = {
    "twintap-agent": "records a host's TCP packets for Twintap",
    "twintap": "shows, packet by packet, where a distributed system spends time",
}
LONG_DESCRIPTION = {
    "twintap-agent": """\
 Records the TCP packets that a host sends and receives, credentials
 overwritten, to files or to a collector of Twintap, which pairs them across
 hosts. This package is the agent alone.""",
    "twintap": """\
 Agents on every host log each TCP send and receive; a collector pairs packets
 across hosts, puts the hosts on one clock and rebuilds requests; a viewer
 shows them. This package holds agent, collector and viewer.""",
}
MAINTAINER = "Twintap maintainers <maintainers@twintap.invalid>"
CONTROL = """\
Package: {package}
Version: {version}
Architecture: {architecture}
Maintainer: {maintainer}
Installed-Size: {size_kib}
Depends: {depends}
Recommends: libpcap0.8
Conflicts: {other}
Replaces: {other}
{provides}Section: net
Priority: optional
Description: {description}
{long_description}
"""
SCRIPT = """\
#!/usr/lib/twintap/bin/python3 -I
import sys

from {module} import {attribute}

sys.exit({attribute}())
"""
SCRIPTS = {"tracer": "twintap", "swift": "python-swiftclient"}
"""Programs of the environment, by the distribution that names them; `tracer cluster` starts `swift`."""


def architecture() -> str:
    """Debian's name of this processor."""
    done = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def build_package(package: str, packages: Path, tree: Path, out: Path) -> Path:
    """Stage a package from a folder of Python packages, and write it to a folder; returns the file."""
    stage(package, packages, tree)
    file = out / f"{package}_{version('twintap')}_{architecture()}.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", *COMPRESSION[package], "-b", tree, file], check=True,
                   stdout=subprocess.DEVNULL)  # fmt: skip
    return file


def stage(package: str, packages: Path, tree: Path) -> None:
    """Lay out the files of a package, with its control files in DEBIAN."""
    tree.mkdir(parents=True, exist_ok=True)
    _stage_environment(package, packages, tree / PREFIX)
    _link(tree / "usr/bin/tracer", "../lib/twintap/bin/tracer")
    _stage_static_agent(tree)
    for part in PARTS[package]:
        unit = f"twintap-{part}.service"
        _copy(UNITS / unit, tree / "usr/lib/systemd/system" / unit, 0o644)
        _copy(SOURCES / f"{part}.env", tree / "etc/twintap" / f"{part}.env", 0o640)
    _copy(ROOT / "docs" / "licences.md", tree / "usr/share/doc" / package / "licences.md", 0o644)
    _copy(SOURCES / "copyright", tree / "usr/share/doc" / package / "copyright", 0o644)
    _write_changelog(tree / "usr/share/doc" / package / "changelog.gz", package)
    _set_modes(tree)
    _write_control(package, tree)
    _set_times(tree, int(os.environ["SOURCE_DATE_EPOCH"]))


def _stage_environment(package: str, packages: Path, prefix: Path) -> None:
    """What `python3 -m venv` makes, without pip; of any of the package's Pythons."""
    shutil.copytree(packages, prefix / "lib/python3/site-packages", symlinks=True)
    for minor in PYTHONS[package]:
        _link(prefix / f"lib/python3.{minor}", "python3")
    _write(prefix / "pyvenv.cfg", "home = /usr/bin\ninclude-system-site-packages = false\n", 0o644)
    _link(prefix / "bin/python3", "/usr/bin/python3")
    for name, owner in SCRIPTS.items():
        point = _script_point(owner, name)
        if (prefix / "lib/python3/site-packages" / point.module.partition(".")[0]).is_dir():
            text = SCRIPT.format(module=point.module, attribute=point.attr)
            _write(prefix / "bin" / name, text, 0o755)


def _script_point(owner: str, name: str) -> EntryPoint:
    (point,) = distribution(owner).entry_points.select(group="console_scripts", name=name)
    return point


def _stage_static_agent(tree: Path) -> None:
    """The static agent once, in the PATH, where `tracer record` finds it on hosts; it sends it from there, too."""
    agent = tree / PREFIX / "lib/python3/site-packages/tracer/_agent"
    _copy(agent, tree / "usr/bin/twintap-agent", 0o755)
    agent.unlink()
    _link(agent, "/usr/bin/twintap-agent")


def _write_changelog(path: Path, package: str) -> None:
    """What Debian's tools want of each package; the real one is CHANGELOG.md."""
    stamp = formatdate(int(os.environ["SOURCE_DATE_EPOCH"]))
    head = f"{package} ({version('twintap')}) unstable; urgency=medium"
    text = f"{head}\n\n  * As CHANGELOG.md says.\n\n -- {MAINTAINER}  {stamp}\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def _write_control(package: str, tree: Path) -> None:
    folder = tree / "DEBIAN"
    size_bytes = sum(path.lstat().st_size for path in tree.rglob("*") if path.is_file() and not path.is_symlink())
    text = CONTROL.format(
        package=package,
        version=version("twintap"),
        architecture=architecture(),
        size_kib=size_bytes // 1024,
        depends=DEPENDS[package],
        other=OTHER[package],
        provides=f"Provides: {OTHER[package]}\n" if package == "twintap" else "",
        maintainer=MAINTAINER,
        description=DESCRIPTION[package],
        long_description=LONG_DESCRIPTION[package],
    )
    _write(folder / "control", text, 0o644)
    _write(folder / "conffiles", "".join(f"/etc/twintap/{part}.env\n" for part in PARTS[package]), 0o644)
    for name in ("postinst", "prerm", "postrm"):
        _write(folder / name, maintainer_script(package, name), 0o755)


def maintainer_script(package: str, name: str) -> str:
    """The text of a script of packaging/debian for a package."""
    parts = PARTS[package]
    return (
        (SOURCES / name)
        .read_text()
        .replace("@PACKAGE@", package)
        .replace("@UNITS@", " ".join(f"twintap-{part}.service" for part in parts))
        .replace("@USERS@", " ".join(USERS[part] for part in parts))
    )


def _set_modes(tree: Path) -> None:
    """Files and folders of everybody's, whatever this user's umask is; programs and settings keep theirs."""
    for path in (tree, *tree.rglob("*")):
        if path.is_symlink():
            continue
        if path.is_dir():
            path.chmod(0o755)
        elif "lib/python3/" in path.as_posix():
            path.chmod(0o644)


def _set_times(tree: Path, seconds: int) -> None:
    for path in (*tree.rglob("*"), tree):
        os.utime(path, (seconds, seconds), follow_symlinks=False)


def _copy(source: Path, target: Path, mode: int) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(mode)


def _write(path: Path, text: str, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def _link(path: Path, target: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)
