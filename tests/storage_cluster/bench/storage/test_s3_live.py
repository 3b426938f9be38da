"""From a row of a run on an S3 store to its packets: each `x-amz-request-id` is a transaction id of the trace."""

import sys
from pathlib import Path

import pytest

from collector.analysis import analyse
from collector.decode.sources import host_sources
from collector.queries import open_trace
from storage_cluster.bench.results import folder
from testkit.live_hosts import pair
from tests.helpers.system_tools import or_skip
from tests.helpers.tiny_s3 import ACCESS_KEY, SECRET_KEY

pytestmark = pytest.mark.live
PORT = "9000"


def test_each_request_of_a_run_leads_to_its_packets(tmp_path: Path) -> None:
    bench = (sys.executable, "-P", "-m", "tracer", "bench", "run", "put", "--count", "3", "--size", "250000")
    with or_skip(), pair() as hosts:
        store = ("--s3", f"http://{hosts.b.address}:{PORT}", "--storage", "part_size_bytes=100000")
        keys = ("--access-key", ACCESS_KEY, "--secret-key", SECRET_KEY)
        with (
            hosts.b.running(sys.executable, "-m", "tests.helpers.tiny_s3", hosts.b.address, PORT, ready="ready"),
            hosts.a.capture(tmp_path / "captures") as first,
            hosts.b.capture(tmp_path / "captures") as second,
        ):
            hosts.a.run(*bench, *store, *keys, "-o", str(tmp_path / "run"))
            first.stop()
            second.stop()
    analyse(host_sources([str(tmp_path / "captures")]), str(tmp_path / "trace"))
    rows = list(folder.load(tmp_path / "run").rows())
    trace = open_trace(str(tmp_path / "trace"))
    numbers = {row.transaction_id: trace.request_of(row.transaction_id) for row in rows}
    assert None not in numbers.values()
    requests = [row for row in rows if row.request or row.operation == "init"]
    assert len({numbers[row.transaction_id] for row in requests}) == len(requests) == 1 + 3 * 5
    text = b"".join(file.read_bytes() for file in (tmp_path / "run").iterdir())
    assert SECRET_KEY.encode() not in text
