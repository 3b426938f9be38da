"""Several drivers and their controller: work is dealt out, figures merge, a lost driver is reported."""

import asyncio
import contextlib
import dataclasses
import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx
import pytest
import uvicorn
from click.testing import CliRunner, Result

from storage_cluster.bench import formats
from storage_cluster.bench.commands import command
from storage_cluster.bench.distributed import campaign, controller, driver, listening
from storage_cluster.bench.distributed.campaign import Campaign
from storage_cluster.bench.distributed.controller import Controller, Submission
from storage_cluster.bench.distributed.remote import Driver
from storage_cluster.bench.distributed.split import deal_out, left_by, split
from storage_cluster.bench.distributed.wire import Mission
from storage_cluster.bench.errors import WorkloadError
from storage_cluster.bench.model import Stage
from storage_cluster.bench.results import folder
from storage_cluster.bench.results.report_text import as_text
from storage_cluster.bench.run.work import Share
from storage_cluster.bench.storage.opening import Login
from storage_cluster.bench.storage.swift import Credentials
from storage_cluster.errors import MissingResourceError
from tests.helpers.tiny_s3 import ACCESS_KEY, SECRET_KEY, TinyS3
from tests.helpers.tiny_store import Behave, Seen, TinyStore, serving, serving_store
from tracer.errors import TracerError

WORKLOAD = b"""
name = "two drivers"
[[stage]]
name = "init"
[[stage.work]]
kind = "init"
workers = 2
containers = "r(1,4)"
[[stage]]
name = "prepare"
[[stage.work]]
kind = "prepare"
workers = 5
containers = "r(1,4)"
objects = "r(1,10)"
sizes = "c(10)B"
[[stage]]
name = "main"
[[stage.work]]
workers = 5
total_ops = 101
operations = [{ kind = "read", containers = "u(1,4)", objects = "u(1,10)", hash_check = true }]
"""
LONG = WORKLOAD.replace(b"total_ops = 101", b"runtime_s = 60")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "LOOK_INTERVAL_S", 0.02)


@contextlib.asynccontextmanager
async def serve(app) -> AsyncIterator[tuple[str, uvicorn.Server]]:
    """An application on loopback."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1))
    server.capture_signals = contextlib.nullcontext  # type: ignore[assignment, method-assign]
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", server
    finally:
        server.should_exit = True
        await task
        listener.close()


@dataclasses.dataclass
class Field:
    """A store and two drivers."""

    store: TinyStore
    drivers: list[Driver]
    servers: list[uvicorn.Server]
    folder: Path

    def mission(self, content: bytes = WORKLOAD, **settings: str) -> Mission:
        login = Login(Credentials(self.store.auth_url, "u", "k"))
        return Mission("", "w.toml", content, settings, login)

    async def lose(self, number: int) -> None:
        """End a driver without a word."""
        self.servers[number].should_exit = True
        while True:
            try:
                await self.drivers[number].client.get("/", headers={"Connection": "close"})
            except httpx.HTTPError:
                return
            await asyncio.sleep(0.01)


def on_a_field(tmp_path: Path, work: Callable[[Field], Awaitable[None]], behave: Behave | None = None) -> None:
    async def run() -> None:
        async with contextlib.AsyncExitStack() as stack:
            store = await stack.enter_async_context(serving(behave))
            field = Field(store, [], [], tmp_path)
            for name in ("d1", "d2"):
                app = driver.create_app(name, tmp_path / f"own-{name}")
                url, server = await stack.enter_async_context(serve(app))
                field.drivers.append(Driver(url))
                field.servers.append(server)
                stack.push_async_callback(field.drivers[-1].client.aclose)
                assert await field.drivers[-1].ping()
            await work(field)

    asyncio.run(run())


def test_two_drivers_do_what_one_would(tmp_path: Path) -> None:
    async def work(field: Field) -> None:
        done = Campaign(field.mission(), field.drivers, tmp_path / "run")
        info = await done.run()
        assert (info.state, info.drivers, info.lost_drivers) == ("done", ("d1", "d2"), ())
        assert {len(held) for held in field.store.containers.values()} == {10}
        assert len(field.store.requests("GET")) == 101 + 2  # each driver logs in
        run = folder.load(tmp_path / "run")
        counts = {key.stage: figures.operations_count for key, figures in run.tally.figures.items()}
        assert counts == {"init": 4, "prepare": 40, "main": 101}
        rows = list(run.rows())
        assert {row.client_id for row in rows} == {"d1", "d2"}
        assert {row.thread for row in rows if row.stage == "main"} == set(range(5))
        again = type(run.tally)()
        for row in rows:
            again.add(row)
        assert {key: each.response.dump() for key, each in again.figures.items()} == {
            key: each.response.dump() for key, each in run.tally.figures.items()
        }
        for name in ("d1", "d2"):
            own = next((tmp_path / f"own-{name}").iterdir())
            assert folder.load(own).info.state == "done"
        assert done.moments[-1].operations_count == 145

    on_a_field(tmp_path, work)


@pytest.mark.parametrize(("stop_on_loss", "state"), [(False, "done"), (True, "failed")])
def test_a_lost_driver_is_reported(tmp_path: Path, stop_on_loss: bool, state: str) -> None:
    async def work(field: Field) -> None:
        settings = {} if stop_on_loss else {"main.runtime_s": "3"}
        lasting = Campaign(field.mission(LONG, **settings), field.drivers, tmp_path / "run", stop_on_loss=stop_on_loss)
        running = asyncio.create_task(lasting.run())
        while not all(any(key.stage == "main" for key in part.tally.figures) for part in lasting._parts):
            await asyncio.sleep(0.01)
        await field.lose(1)
        info = await asyncio.wait_for(running, 60)
        assert (info.state, info.lost_drivers) == (state, ("d2",))
        assert (info.note == "stopped, since d2 was lost") is stop_on_loss
        run = folder.load(tmp_path / "run")
        assert {row.client_id for row in run.rows() if row.stage == "main"} == {"d1", "d2"}

    on_a_field(tmp_path, work)


def test_the_others_take_over_what_a_lost_driver_had_left(tmp_path: Path) -> None:
    async def work(field: Field) -> None:
        many = WORKLOAD.replace(b"total_ops = 101", b"total_ops = 4000")
        counted = Campaign(field.mission(many), field.drivers, tmp_path / "run")
        running = asyncio.create_task(counted.run())
        while not any(key.stage == "main" for key in counted._parts[1].tally.figures):
            await asyncio.sleep(0.01)
        await field.lose(1)
        info = await asyncio.wait_for(running, 60)
        assert (info.state, info.lost_drivers) == ("done", ("d2",))
        assert info.notes == ("d2 was lost in stage main; d1 took over main",)
        run = folder.load(tmp_path / "run")
        assert {key.stage: each.operations_count for key, each in run.tally.figures.items()}["main"] == 4000
        rows = [row for row in run.rows() if row.stage == "main"]
        assert {row.thread for row in rows if row.client_id == "d1"} == set(range(5))
        assert info.notes[0] in as_text(run)

    on_a_field(tmp_path, work)


def test_a_scan_that_a_lost_driver_was_at_is_done_again(tmp_path: Path) -> None:
    gate = asyncio.Event()

    def hold(seen: Seen) -> object:
        return gate.wait() if "objects" in seen.name else None

    async def work(field: Field) -> None:
        done = Campaign(field.mission(), field.drivers, tmp_path / "run")
        running = asyncio.create_task(done.run())
        while done._parts[1].status is None or done._parts[1].status.stage < 1:
            await asyncio.sleep(0.01)
        await field.lose(1)
        while not done.info.notes:
            await asyncio.sleep(0.01)
        gate.set()
        info = await asyncio.wait_for(running, 60)
        assert info.lost_drivers == ("d2",)
        assert (info.state, info.notes) == ("done", ("d2 was lost in stage prepare; d1 took over prepare",))
        assert {len(held) for held in field.store.containers.values()} == {10}

    on_a_field(tmp_path, work, hold)


def test_no_driver_left_ends_the_run(tmp_path: Path) -> None:
    async def work(field: Field) -> None:
        lasting = Campaign(field.mission(LONG), field.drivers, tmp_path / "run")
        running = asyncio.create_task(lasting.run())
        while not lasting.moments:
            await asyncio.sleep(0.01)
        await field.lose(0)
        await field.lose(1)
        info = await asyncio.wait_for(running, 60)
        assert (info.state, info.note, info.lost_drivers) == ("failed", "every driver is lost", ("d1", "d2"))

    on_a_field(tmp_path, work)


def test_nobody_takes_over_where_all_were_lost_at_once(tmp_path: Path) -> None:
    async def work(field: Field) -> None:
        lasting = Campaign(field.mission(LONG), field.drivers, tmp_path / "run")
        running = asyncio.create_task(lasting.run())
        while not lasting.moments:
            await asyncio.sleep(0.01)
        for part in lasting._parts:
            part.lost = True
        assert any(part.shares for part in lasting._parts)
        assert not await lasting._take_over(0, 1.0)
        info = await asyncio.wait_for(running, 60)
        assert (info.state, info.note) == ("failed", "every driver is lost")

    on_a_field(tmp_path, work)


def test_a_run_is_called_off(tmp_path: Path) -> None:
    async def work(field: Field) -> None:
        lasting = Campaign(field.mission(LONG), field.drivers, tmp_path / "run")
        running = asyncio.create_task(lasting.run())
        while not any(key.stage == "main" for part in lasting._parts for key in part.tally.figures):
            await asyncio.sleep(0.01)
        lasting.cancel()
        info = await asyncio.wait_for(running, 60)
        assert (info.state, info.note) == ("cancelled", "called off in stage main")

    on_a_field(tmp_path, work)


def test_what_a_driver_cannot_do_fails_the_run(tmp_path: Path) -> None:
    async def work(field: Field) -> None:
        login = Login(Credentials("http://127.0.0.1:1/auth/v1.0", "u", "k"))
        mission = dataclasses.replace(field.mission(), login=login)
        info = await Campaign(mission, field.drivers, tmp_path / "run").run()
        assert info.state == "failed"
        assert "d1: http://127.0.0.1:1/auth/v1.0 does not answer" in info.note

    on_a_field(tmp_path, work)


def test_an_s3_store_is_named_to_the_drivers(tmp_path: Path) -> None:
    async def work(field: Field) -> None:
        async with serving_store(TinyS3()) as memory:
            options = {"endpoint": memory.url, "access_key": ACCESS_KEY, "secret_key": SECRET_KEY}
            options["part_size_bytes"] = "4"
            submission = Submission(file="w.toml", content=WORKLOAD.decode(), s3=options)
            mission = dataclasses.replace(field.mission(), login=submission.login())
            assert Mission.load(json.loads(json.dumps(mission.dump()))) == mission
            info = await Campaign(mission, field.drivers, tmp_path / "run").run()
            assert (info.state, len(memory.containers)) == ("done", 4)
            assert {seen.method for seen in memory.seen} == {"PUT", "GET", "POST"}
            assert not field.store.containers
        kept = [file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file()]
        assert not any(SECRET_KEY.encode() in content for content in kept)

    on_a_field(tmp_path, work)


def test_the_controller_takes_cancels_and_remembers_runs(tmp_path: Path) -> None:
    async def work(field: Field) -> None:
        made = Controller(field.drivers, tmp_path / "runs")
        async with (
            serve(controller.create_app(made)) as (url, _),
            httpx.AsyncClient(base_url=url, timeout=60) as client,
        ):
            while not all(each["alive"] for each in (await client.get("/api/state")).json()["drivers"]):
                await asyncio.sleep(0.01)
            body = {"file": "w.toml", "content": WORKLOAD.decode(), "settings": {"main.workers": "3"}}
            body |= {"auth": field.store.auth_url, "user": "u", "key": "k"}
            first = (await client.post("/api/runs", json=body)).json()["id"]
            second = (await client.post("/api/runs", json=body)).json()["id"]
            assert (await client.post(f"/api/runs/{second}/cancel")).status_code == 202
            while (found := (await client.get(f"/api/runs/{first}")).json())["state"] in ("queued", "running"):
                await asyncio.sleep(0.01)
            assert (found["state"], found["name"]) == ("done", "two drivers")
            assert found["moments"][-1]["operations_count"] == 145
            assert "two drivers: done" in (await client.get(f"/api/runs/{first}/report")).text
            assert "s3-main,read,read,101," in (await client.get(f"/api/runs/{first}/report?form=cosbench")).text
            assert "no difference seen" in (await client.get(f"/api/compare?first={first}&second={first}")).text
            states = {each["id"]: each["state"] for each in (await client.get("/api/state")).json()["runs"]}
            assert states == {first: "done", second: "cancelled"}
            wrong = await client.post("/api/runs", json=body | {"content": "name = 1"})
            assert (wrong.status_code, "w.toml" in wrong.json()["detail"]) == (422, True)
            assert (await client.get("/api/runs/..%2f/report")).status_code == 404
            assert "<title>Load" in (await client.get("/")).text
        assert Controller([], tmp_path / "runs").history() == [first]

    on_a_field(tmp_path, work)


def test_a_run_from_the_terminal(tmp_path: Path) -> None:
    file = tmp_path / "w.toml"

    async def bench(*argv: str) -> Result:
        return await asyncio.to_thread(CliRunner().invoke, command, argv)

    async def work(field: Field) -> None:
        made = Controller(field.drivers, tmp_path / "runs")
        async with serve(controller.create_app(made)) as (url, _):
            while not all(driver.alive for driver in field.drivers):
                await asyncio.sleep(0.01)
            store = ("--auth", field.store.auth_url, "--user", "u", "--key", "k")
            file.write_bytes(WORKLOAD)
            done = await bench("submit", url, str(file), "--wait", "--set", "main.workers=3", *store)
            assert done.exit_code == 0, done.output
            first = done.output.splitlines()[0]
            assert "two drivers: done" in done.output and "with main.workers=3" in done.output
            file.write_bytes(LONG)
            second = (await bench("submit", url, str(file), *store)).output.strip()
            while made.entries[second].state != "running":
                await asyncio.sleep(0.01)
            assert (await bench("cancel", url, second)).output == f"{second} is called off\n"
            while made.entries[second].state == "running":
                await asyncio.sleep(0.01)
            lines = (await bench("status", url)).output.splitlines()
            assert [line.split()[:3] for line in lines] == [
                ["driver", "d1", "answers"], ["driver", "d2", "answers"], ["run", second, "cancelled"],
                ["run", first, "done"],
            ]  # fmt: skip
            assert "main: 145 operations in" in (await bench("status", url, first)).output
            for argv, message in (
                (("status", url, "nope"), "knows no run nope"),
                (("cancel", url, "nope"), "refused (404): no such run"),
                (("submit", url, str(file), "--set", "main.colour=red"), "refused (422)"),
                (("submit", url, str(tmp_path / "none.toml")), "none.toml cannot be read"),
                (("status", "127.0.0.1:1"), "the controller at http://127.0.0.1:1 does not answer"),
            ):
                failed = await bench(*argv)
                assert isinstance(failed.exception, TracerError)
                assert message in str(failed.exception)

    on_a_field(tmp_path, work)


@pytest.mark.parametrize(
    ("token", "headers", "path", "status"),
    [
        ("", {}, "/", 200),
        ("", {"Host": "evil.example"}, "/", 403),
        ("secret", {}, "/", 401),
        ("secret", {"Authorization": "Bearer secret"}, "/", 200),
        ("secret", {"Authorization": "Bearer wrong"}, "/", 401),
        ("secret", {"Host": "bench.example", "Cookie": "twintap_bench_token=secret"}, "/", 200),
        ("secret", {}, "/?token=secret", 401),
    ],
)
def test_who_may_ask(tmp_path: Path, token: str, headers: dict[str, str], path: str, status: int) -> None:
    async def ask() -> int:
        transport = httpx.ASGITransport(driver.create_app("d", tmp_path, token))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return (await client.get(path, headers=headers)).status_code

    assert asyncio.run(ask()) == status


def test_a_browser_is_asked_for_the_token_once(tmp_path: Path) -> None:
    async def ask() -> list[tuple[int, bool]]:
        transport = httpx.ASGITransport(driver.create_app("d", tmp_path, "sec ret&"))
        async with httpx.AsyncClient(transport=transport, base_url="http://bench.example") as client:
            asked = await client.get("/", headers={"Accept": "text/html"})
            wrong = await client.post("/token", data={"token": "wrong"})
            long = await client.post("/token", data={"token": "x" * 100_000})
            right = await client.post("/token", data={"token": "sec ret&"})
            shown = await client.get("/")
            return [(each.status_code, "type=password" in each.text) for each in (asked, wrong, long, right, shown)]

    assert asyncio.run(ask()) == [(401, True), (401, True), (401, True), (303, False), (200, False)]


def test_a_token_is_taken_from_a_file_and_is_in_no_line_that_is_printed(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("planted-secret\n")
    options = ["--token-file", str(tmp_path / "token"), "--listen", "127.0.0.1:0", "--data", str(tmp_path / "runs")]
    for argv in (["controller", "--driver", "127.0.0.1:1", *options], ["driver", *options]):
        running = subprocess.Popen(
            [sys.executable, "-P", "-m", "tracer", "bench", *argv],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        assert running.stdout is not None
        line = running.stdout.readline()
        url = re.search(r"http://[^ /]+", line)
        assert url is not None, line
        answers = [
            httpx.get(f"{url[0]}/", headers=headers, trust_env=False).status_code
            for headers in ({}, {"Authorization": "Bearer planted-secret"})
        ]
        running.send_signal(signal.SIGTERM)
        rest, _ = running.communicate(timeout=60)
        assert answers == [401, 200]
        assert "planted-secret" not in line + rest
        assert "Traceback" not in rest


@pytest.mark.parametrize("listen", ["nowhere", "127.0.0.1:99999", "0.0.0.0:0", "192.0.2.1:0"])
def test_where_one_may_not_listen_is_one_line(listen: str) -> None:
    with pytest.raises(MissingResourceError):
        listening.bind(listen, "secret" if listen.startswith("192") else "")


def stage_of(**changes: object) -> Stage:
    main = formats.parse(WORKLOAD, "w.toml")[0].stages[2]
    return dataclasses.replace(main, works=(dataclasses.replace(main.works[0], **changes),))


def test_what_is_left_of_a_share() -> None:
    had = {"main": [Share(2, 3, 5)]}  # 61 of 101 operations
    (rest,) = left_by(stage_of(), had, {"main": (40, 0)}, 7.0)["main"]
    assert (rest.first, rest.count, rest.total, rest.ops_left, rest.elapsed_s) == (2, 3, 5, 21, 7.0)
    assert left_by(stage_of(), had, {"main": (61, 0)}, 7.0) == {}
    assert left_by(stage_of(driver="d2"), had, {}, 7.0) == {}
    timed = stage_of(total_ops=0, runtime_s=10.0, rampdown_s=1.0)
    assert left_by(timed, had, {"main": (999, 0)}, 10.9)["main"][0].elapsed_s == 10.9
    assert left_by(timed, had, {}, 11.0) == {}
    bytes_limited = stage_of(total_ops=0, total_bytes=1000)
    assert left_by(bytes_limited, had, {"main": (5, 599)}, 1.0)["main"][0].bytes_left == 1
    assert left_by(bytes_limited, had, {"main": (5, 600)}, 1.0) == {}
    scan = formats.parse(WORKLOAD, "w.toml")[0].stages[1]
    assert left_by(scan, {"prepare": [Share(2, 3, 5)]}, {"prepare": (7, 70)}, 3.0)["prepare"][0].elapsed_s == 0.0
    twice = {"main": [Share(2, 3, 5), Share(0, 1, 5, 10, 0, 2.0)]}  # it had taken over 10 operations
    assert [each.ops_left for each in left_by(stage_of(), twice, {"main": (65, 0)}, 7.0)["main"]] == [6]


def test_what_is_left_is_dealt_out_so_that_it_adds_up() -> None:
    left = {"main": [Share(2, 3, 5, 20, 0, 7.0), Share(0, 1, 5, 3, 0, 7.0)]}
    first, second = deal_out(left, ["a", "b"])
    assert first == {"a": {"main": Share(2, 1, 5, 6, 0, 7.0)}, "b": {"main": Share(3, 2, 5, 14, 0, 7.0)}}
    assert second == {"a": {}, "b": {"main": Share(0, 1, 5, 3, 0, 7.0)}}


def test_workers_are_dealt_out_evenly() -> None:
    stage = formats.parse(WORKLOAD, "w.toml")[0].stages[2]
    assert split(stage, ["a", "b", "c"]) == {
        "a": {"main": Share(0, 1, 5)}, "b": {"main": Share(1, 2, 5)}, "c": {"main": Share(3, 2, 5)},
    }  # fmt: skip
    many = split(stage, [str(n) for n in range(7)])
    assert sum(len(works) for works in many.values()) == 5
    own = dataclasses.replace(stage, works=(dataclasses.replace(stage.works[0], driver="b"),))
    assert split(own, ["a", "b"]) == {"a": {}, "b": {"main": Share(0, 5, 5)}}
    with pytest.raises(WorkloadError, match="is for driver b, which is not there"):
        split(own, ["a"])


def test_a_paused_run_begins_nothing_until_it_goes_on(tmp_path: Path) -> None:
    async def work(field: Field) -> None:
        running = Campaign(field.mission(), field.drivers, tmp_path / "run")
        running.pause()
        task = asyncio.create_task(running.run())
        looks = 0
        while looks < 20 or not any(mark.kind == "paused" for mark in running.info.marks):
            looks = len(running.moments)
            await asyncio.sleep(0.01)
        assert not field.store.requests("GET")[2:] and not task.done()  # each driver logs in
        running.resume()
        info = await task
        assert (info.state, [mark.kind for mark in info.marks]) == ("done", ["paused", "resumed"])
        assert len(field.store.requests("GET")) == 101 + 2
        assert folder.load(tmp_path / "run").tally.total().failures_count == 0

    on_a_field(tmp_path, work)


def test_a_lost_driver_is_a_mark_on_the_time_axis(tmp_path: Path) -> None:
    async def work(field: Field) -> None:
        lasting = Campaign(field.mission(LONG), field.drivers, tmp_path / "run", stop_on_loss=True)
        task = asyncio.create_task(lasting.run())
        while not any(moment.stage == "main" for moment in lasting.moments):
            await asyncio.sleep(0)
        await field.lose(1)
        info = await task
        assert ("driver lost", "d2 lost") in [(mark.kind, mark.text) for mark in info.marks]
        assert folder.load(tmp_path / "run").info.marks == info.marks

    on_a_field(tmp_path, work)


def test_no_page_of_another_site_gives_orders(tmp_path: Path) -> None:
    async def work(field: Field) -> None:
        made = Controller(field.drivers, tmp_path)
        async with serve(controller.create_app(made)) as (url, _), httpx.AsyncClient(base_url=url) as client:
            for origin, expected in (("http://evil.example", 403), ("null", 403), (url, 404)):
                answer = await client.post("/api/runs/none/cancel", headers={"Origin": origin})
                assert answer.status_code == expected
            assert (await client.post("/api/runs/none/cancel")).status_code == 404
            assert (await client.post("/api/runs/none/pause")).status_code == 409
            assert (await client.post("/api/runs/none/rerun", json={})).status_code == 409
            assert (await client.get("/page/page.js")).status_code == 200
            assert (await client.get("/page/..%2fcontroller.py")).status_code == 404

    on_a_field(tmp_path, work)


def test_a_drivers_address_of_another_kind_is_refused(tmp_path: Path) -> None:
    words = ["controller", "--driver", "127.0.0.1:1", "--driver", "ftp://x", "--data", str(tmp_path)]
    with pytest.raises(TracerError, match="--driver ftp://x is no driver's address"):
        CliRunner().invoke(command, words, catch_exceptions=False)
