"""What some tests need of the system: programs, network namespaces. Where it is missing they are skipped, saying so."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from testkit.live_hosts import NoNamespacesError

SYSTEM_PATH = "/usr/sbin:/sbin"


def needs(program: str, package: str) -> pytest.MarkDecorator:
    """Skip a test where `program` is neither in PATH nor among the system's own; `package` is Debian's name."""
    found = shutil.which(program) or shutil.which(program, path=SYSTEM_PATH)
    return pytest.mark.skipif(found is None, reason=f"{program} is not installed: apt-get install {package}")


needs_nft = needs("nft", "nftables")
needs_xfs = needs("mkfs.xfs", "xfsprogs")


@contextmanager
def or_skip() -> Iterator[None]:
    """Skip the test, with the reason, where hosts cannot be made: `with or_skip(), pair() as hosts:`."""
    try:
        yield
    except NoNamespacesError as error:
        pytest.skip(f"NOT TESTED, no namespaces can be made here: {error}")
