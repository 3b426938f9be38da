"""The web server, asked over a socket."""

import contextlib
import resource
import urllib.request

from collector.queries import TraceView
from tests.helpers.viewer_server import serving

OPEN_FILES_COUNT = 1_100  # more than `select` can watch


def test_a_page_is_served_by_a_process_with_many_open_files(small_trace: TraceView) -> None:
    """Also where its socket is not among the first 1,024 files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(OPEN_FILES_COUNT):
            stack.enter_context(open("/dev/null", "rb"))
        url = stack.enter_context(serving(small_trace))
        with urllib.request.urlopen(url, timeout=20) as answer:
            assert answer.status == 200
