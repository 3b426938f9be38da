"""The limit on open files, tried in a process of its own."""

import subprocess
import sys

_PROGRAM = """
import resource
from storage_cluster.servers import open_files
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 256))
open_files.allow_all()
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_the_limit_is_raised_as_far_as_is_allowed() -> None:
    """From 64 to the 256 that the process may ask for."""
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["256", "256"]
