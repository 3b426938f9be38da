"""The proxy is killed under load, time and again: nothing that it answered is lost, nothing is there twice."""

import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from storage_cluster.servers import process
from storage_cluster.topology import Service
from testkit.two_back_ends import STORES, TwoBackEnds
from tests.helpers.polling import wait_for
from tests.helpers.s3_clients import client_of

KEYS = tuple("abcd")
KILLS_COUNT, PUTS_BETWEEN = 2, 12
BUCKET = "killed"
TOPOLOGY = """
[services]
routing = {port}
{stores}
[routing]
small = "http://127.0.0.1:{small}"
large = "http://127.0.0.1:{large}"
threshold_bytes = 1000
body = "{body}"
locations = "{locations}"
[[host]]
name = "client"
address = "127.0.0.2"
[[host]]
name = "proxy"
address = "127.0.0.1"
services = ["routing"]
[[user]]
account = "test"
name = "tester"
key = "testing"
"""


class Writer(threading.Thread):
    """Writes versions of one key, small and large ones in any order, as long as its proxy lives."""

    def __init__(self, client: Any, key: str, first: int, count: int, confirmed: dict[str, int]) -> None:
        super().__init__()
        self._client, self._key, self._first, self._count, self._confirmed = client, key, first, count, confirmed
        self.last = first

    def run(self) -> None:
        for number in range(self._first, self._first + self._count):
            self.last = number
            body = b"%06d" % number * (1000 if random.Random(f"{self._key}{number}").random() < 0.5 else 1)
            try:
                self._client.put_object(Bucket=BUCKET, Key=self._key, Body=body)
            except (ClientError, BotoCoreError):
                return
            self._confirmed[self._key] = number


def start(state_dir: Path) -> subprocess.Popen[bytes]:
    argv = [
        sys.executable,
        "-m",
        "storage_cluster.servers",
        "routing",
        "--host",
        "proxy",
        "--state-dir",
        str(state_dir),
    ]
    started = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert started.stdout is not None
    assert started.stdout.readline() == b"ready\n"
    return started


def kill(proxy: subprocess.Popen[bytes]) -> None:
    proxy.kill()
    proxy.communicate()


def keys_in(stores: Iterable[Any]) -> list[str]:
    """Of all objects in these stores."""
    return [entry["Key"] for each in stores for entry in each.list_objects_v2(Bucket=BUCKET).get("Contents", [])]


def client_at(port: int) -> Any:
    config = Config(s3={"addressing_style": "path"}, retries={"max_attempts": 0}, signature_version="s3v4")
    named = {"aws_access_key_id": "test:tester", "aws_secret_access_key": "testing", "region_name": "us-east-1"}
    return boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", config=config, **named)


@pytest.fixture
def state_dir(front: TwoBackEnds, tmp_path: Path) -> Path:
    bound = process.bind(Service("routing", "proxy", "127.0.0.1", 0))
    ports = {size: front.topology.service("s3", host).port for size, host in STORES.items()}
    routing = front.topology.routing
    text = TOPOLOGY.format(
        port=bound.getsockname()[1], stores="", body=routing.body, locations=routing.locations, **ports
    )
    (tmp_path / "topology.toml").write_text(text)
    bound.close()
    return tmp_path


def test_killed_under_load(front: TwoBackEnds, state_dir: Path) -> None:
    port = int((state_dir / "topology.toml").read_text().split("routing = ")[1].split()[0])
    stores = {size: client_of(front, host=host) for size, host in STORES.items()}
    source, confirmed, attempted = random.Random(1), dict.fromkeys(KEYS, 0), dict.fromkeys(KEYS, 0)
    proxy = start(state_dir)
    client_at(port).create_bucket(Bucket=BUCKET)
    for _ in range(KILLS_COUNT):
        writers = [Writer(client_at(port), key, attempted[key] + 1, PUTS_BETWEEN, confirmed) for key in KEYS]
        for writer in writers:
            writer.start()
        enough = sum(confirmed.values()) + source.randint(2, 12)
        wait_for(lambda: sum(confirmed.values()) >= enough, "writes that are answered")  # noqa: B023, asked at once
        time.sleep(source.uniform(0, 0.02))
        kill(proxy)
        for key, writer in zip(KEYS, writers, strict=True):
            writer.join()
            attempted[key] = writer.last
        proxy = start(state_dir)
        client = client_at(port)
        for key in KEYS if any(confirmed.values()) else ():
            body = client.get_object(Bucket=BUCKET, Key=key)["Body"].read() if confirmed[key] else b"000000"
            assert confirmed[key] <= int(body[:6]) <= attempted[key], key
            assert body == body[:6] * (len(body) // 6), "a body is whole"
            assert len(body) in (6, 6000)
        # A store may still be at what the killed one sent it, and no request here may have waited for the recovery.
        wait_for(lambda: len(held := keys_in(stores.values())) == len(set(held)), "one copy of each object")
    kill(proxy)
    assert sum(confirmed.values()) > KILLS_COUNT
    assert confirmed != attempted, "the proxy was never killed in the middle of a write"
