"""Programs of the system that some tests need. Where one is missing they are skipped, and say so."""

import shutil

import pytest

SYSTEM_PATH = "/usr/sbin:/sbin"


def needs(program: str, package: str) -> pytest.MarkDecorator:
    """Skip a test where `program` is neither in PATH nor among the system's own; `package` is Debian's name."""
    found = shutil.which(program) or shutil.which(program, path=SYSTEM_PATH)
    return pytest.mark.skipif(found is None, reason=f"{program} is not installed: apt-get install {package}")


needs_nft = needs("nft", "nftables")
needs_xfs = needs("mkfs.xfs", "xfsprogs")
