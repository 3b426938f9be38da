"""Redis as a broker and as a queue: subscriptions and blocking reads are no requests; commands that take 50 ms are.

Truth: Redis's slow log with every command, and how many messages were published or queued.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from benchmarks.real_systems.capturing import AGENT, agent, running
from benchmarks.real_systems.lab import Lab
from benchmarks.real_systems.scenario import Scenario, addresses, scenario
from benchmarks.real_systems.systems.redis import PORT, slow_log, start_redis
from benchmarks.real_systems.truth import StreamTruth, Truth

APART_S = "0.12"
WAITING = ("SUBSCRIBE", "BLPOP")


class _Broker(Scenario):
    """A reader, a writer, and commands of 50 ms beside them."""

    hosts: Mapping[str, str] = addresses(client="10.68.0.10", reader="10.68.0.15", cache="10.68.0.20")
    needs = (("redis-server", "redis-server"), ("redis-cli", "redis-tools"))
    count = 20
    reads: tuple[str, ...]
    writes: tuple[str, ...]

    def start(self, lab: Lab) -> None:
        start_redis(lab, "cache")

    def traffic(self, lab: Lab) -> Truth:
        client = ("redis-cli", "-h", lab.address("cache"))
        reader = lab.start("reader", *client, *self.reads, name="reader")
        time.sleep(0.5)
        lab.run("client", *client, "-r", str(self.count), "-i", APART_S, *self.writes)
        lab.run("client", *client, "-r", "10", "debug", "sleep", "0.05")
        lab.run("client", *client, "-r", "30", "get", "nothing")
        time.sleep(0.3)
        reader.terminate()
        server = f"{lab.address('cache')}:{PORT}"
        return Truth(calls=slow_log(lab, "cache", server, WAITING), streams=[self.stream(server)])

    def stream(self, server: str) -> StreamTruth:
        """What is pushed."""
        return StreamTruth(server, 1, (self.count, self.count + 1))


@scenario
class RedisSubscription(_Broker):
    """20 messages to a subscriber."""

    name = "redis-pubsub"
    words = "Redis; a subscriber that gets 20 messages, and commands of 50 ms beside it"
    reads, writes = ("subscribe", "news"), ("publish", "news", "something")


@scenario
class RedisQueue(_Broker):
    """A worker that waits for 20 jobs, one after the other."""

    name = "redis-blpop"
    words = "Redis; a worker's 21 BLPOPs, 20 jobs, and commands of 50 ms beside it"
    reads, writes = ("-r", "21", "blpop", "jobs", "0"), ("rpush", "jobs", "something")


@scenario
class RedisQueueUnread(RedisQueue):
    """Likewise; nothing of a payload is captured, so only the shape shows what is a request."""

    name = "redis-blpop-headers"
    words = "the same, captured without payloads"
    by = (AGENT,)

    @contextmanager
    def _capture(self, lab: Lab, folder: Path) -> Iterator[None]:
        with running(*(agent(lab.hosts[name], folder / AGENT, "--payload", "none") for name in self.hosts)):
            yield

    def capturing(self, lab: Lab, folder: Path) -> AbstractContextManager[None]:
        return self._capture(lab, folder)
