"""Redis, by its own client and by redis-benchmark.

Truth: Redis's slow log with a threshold of 0, which has every command, how long it took (µs) and its client's port.
"""

import json
from collections.abc import Collection

from benchmarks.real_systems.cache_driver import CacheByDriver
from benchmarks.real_systems.lab import Lab
from benchmarks.real_systems.scenario import Scenario, addresses, scenario
from benchmarks.real_systems.truth import Call, Truth

PORT = 6379
LOCAL = "127.0.0.1"
"""Whence the slow log is asked for."""


def start_redis(lab: Lab, host: str) -> None:
    """Redis with everything in its slow log."""
    lab.start(
        host, "redis-server", "--port", str(PORT), "--bind", lab.address(host), LOCAL, "--protected-mode", "no",
        "--save", "", "--slowlog-log-slower-than", "0", "--slowlog-max-len", "1000000",
        "--enable-debug-command", "yes", port=PORT,
    )  # fmt: skip


def slow_log(lab: Lab, host: str, server: str, waiting: Collection[str] = ()) -> list[Call]:
    """Every command that Redis got from another host, but those of `waiting`, by which a client waits for others."""
    return commands(lab.run(host, "redis-cli", "-h", LOCAL, "--json", "slowlog", "get", "-1"), server, waiting)


def commands(said: str, server: str, waiting: Collection[str] = ()) -> list[Call]:
    """What `redis-cli --json slowlog get` prints, as calls. Arguments: as for `slow_log`."""
    found = []
    for number, _, took_us, words, client, *_ in json.loads(said):
        address, _, port = client.rpartition(":")
        if address != LOCAL and words[0].upper() not in waiting:
            call = Call(f"redis {number}", server, client_port=int(port), started_ns=number, parent="")
            call.server_ns = took_us * 1_000
            found.append(call)
    return found


@scenario
class Redis(Scenario):
    """redis-benchmark, and a client whose commands take Redis 20 ms."""

    name = "redis"
    words = "Redis; redis-benchmark (5 connections), redis-cli"
    hosts = addresses(client="10.68.0.10", cache="10.68.0.20")
    needs = (
        ("redis-server", "redis-server"),
        ("redis-benchmark", "redis-tools"),
    )

    def start(self, lab: Lab) -> None:
        start_redis(lab, "cache")

    def traffic(self, lab: Lab) -> Truth:
        address = lab.address("cache")
        lab.run("client", "redis-benchmark", "-h", address, "-c", "5", "-n", "600", "-t", "set,get,incr", "-q")
        lab.run("client", "redis-cli", "-h", address, "-r", "30", "debug", "sleep", "0.02")
        lab.run("client", "redis-cli", "-h", address, "-r", "100", "get", "nothing")
        server = f"{address}:{PORT}"
        return Truth(calls=slow_log(lab, "cache", server), names={server: r"redis|cache:6379"})


@scenario
class RedisPipelined(Scenario):
    """redis-benchmark with 16 commands in flight on each connection."""

    name = "redis-pipelined"
    words = "Redis; redis-benchmark, 16 commands in flight on each of 5 connections"
    hosts = Redis.hosts
    needs = Redis.needs

    def start(self, lab: Lab) -> None:
        start_redis(lab, "cache")

    def traffic(self, lab: Lab) -> Truth:
        address = lab.address("cache")
        lab.run("client", "redis-benchmark", "-h", address, "-c", "5", "-n", "3200", "-t", "get", "-P", "16", "-q")
        server = f"{address}:{PORT}"
        return Truth(calls=slow_log(lab, "cache", server), names={server: r"redis|cache:6379"})


@scenario
class RedisByDriver(CacheByDriver):
    """Small and large values, 100 commands at once, transactions, scripts, errors, RESP 3."""

    name = "redis-driver"
    words = "Redis; a client's own times of 600 commands: RESP 3, values of 400 kB, 100 commands at once, errors"
    kind = "redis"
    port = PORT
    needs = Redis.needs[:1]

    def start(self, lab: Lab) -> None:
        start_redis(lab, "cache")
