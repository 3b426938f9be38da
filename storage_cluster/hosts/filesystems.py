"""Mounts real file systems for devices: ext3, ext4 or xfs in a file, on a loop device, at the device's directory.

The keeper mounts them in a mount namespace of its own, which its servers share and nobody else sees. So they are gone
with the last of these processes, however it ended, and no mount is ever left on the machine; to look inside:
`nsenter --target KEEPER --mount`. The files stay with `down --keep-data`.

Needs root of the machine: the kernel lets no other user mount a disk's file system.
"""

import ctypes
import errno
import os
import shutil
import subprocess
from pathlib import Path

from storage_cluster.errors import MissingResourceError, NotPermittedError
from storage_cluster.hosts import namespaces
from storage_cluster.topology import Disk, Topology

IMAGES_DIR = "images"
_MIB = 1 << 20
_MS_REC, _MS_PRIVATE = 0x4000, 0x40000
_MAKE = {
    "ext3": ("mkfs.ext3", "-q", "-F", "-m", "0"),
    "ext4": ("mkfs.ext4", "-q", "-F", "-m", "0"),
    "xfs": ("mkfs.xfs", "-q", "-f"),
}
_PACKAGES = {"ext3": "e2fsprogs", "ext4": "e2fsprogs", "xfs": "xfsprogs"}
_libc = ctypes.CDLL(None, use_errno=True)


def mount(topology: Topology, state_dir: Path) -> None:
    """Make and mount the file systems of the topology, for this process and its children.

    Raises: NotPermittedError, MissingResourceError.
    """
    wanted = [(host.name, disk) for host in topology.hosts for disk in host.disks if disk.filesystem]
    if not wanted:
        return
    if os.geteuid() != 0 or not _owns_machine():
        raise NotPermittedError(
            f"a device with a file system of its own ({wanted[0][0]}/{wanted[0][1].name}) needs root",
            "run this as root, or leave `filesystem` out of the topology",
        )
    namespaces.unshare(namespaces.CLONE_NEWNS)
    if _libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None) != 0:
        raise MissingResourceError(f"mounts cannot be made private ({os.strerror(ctypes.get_errno())})", "try again")
    for host, disk in wanted:
        _mount_one(disk, state_dir / IMAGES_DIR / f"{host}-{disk.name}", state_dir / "data" / host / disk.name)


def fill(filler: Path) -> None:
    """Use all free space of a file's file system."""
    descriptor = os.open(filler, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        size = 0
        for piece in (64 * _MIB, _MIB, 4096):
            while _grow(descriptor, size, piece):
                size += piece
    finally:
        os.close(descriptor)


def _grow(descriptor: int, size: int, piece: int) -> bool:
    try:
        os.posix_fallocate(descriptor, size, piece)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            return False
        raise
    return True


def _mount_one(disk: Disk, image: Path, place: Path) -> None:
    place.mkdir(parents=True, exist_ok=True)
    if not image.exists():
        image.parent.mkdir(parents=True, exist_ok=True)
        with open(image, "wb") as file:
            file.truncate(disk.size_mib * _MIB)
        _run(disk, *_MAKE[disk.filesystem], str(image))
    _run(disk, "mount", "-t", disk.filesystem, "-o", "loop,noatime", str(image), str(place))


def _run(disk: Disk, program: str, *arguments: str) -> None:
    found = shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin")
    if found is None:
        package = _PACKAGES[disk.filesystem]
        raise MissingResourceError(f"`{program}` is not installed", f"install {package}")
    done = subprocess.run([found, *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = " / ".join(done.stderr.strip().splitlines()[-2:])
        raise MissingResourceError(f"{disk.filesystem} for {disk.name} cannot be made ({reason})", "see the topology")


def _owns_machine() -> bool:
    """Whether root here is root of the machine, not of a user namespace."""
    return Path("/proc/self/uid_map").read_text("ascii").split()[:3] == ["0", "0", "4294967295"]
