"""Orders to all agents of a session: kept, given in answers, and wrong ones refused."""

from pathlib import Path
from typing import Any

import pytest

from tests.collector.service.test_agents import KEY, report
from tests.collector.service.test_ingest import path_of
from tests.collector.service.test_windows import Bench

STOP = {"recording": False, "expression": "port 80", "payload": "none", "cpu_percent": 0.0}
OWN = {"recording": True, "expression": "", "payload": "", "cpu_percent": 0.0}


def orders_of(bench: Bench) -> Any:
    return bench.client.post(f"{path_of()}/report", json=report().model_dump(mode="json")).json()["orders"]


def test_agents_get_the_orders_of_their_session_in_answers(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    assert orders_of(bench) == OWN
    assert bench.client.post("/api/sessions/s1/orders", json=STOP).json() == STOP
    bench.client.post("/api/sessions/s2/orders", json={"payload": "heads"})
    assert orders_of(bench) == STOP
    again = Bench(tmp_path)
    assert orders_of(again) == STOP, "a collector that is started again knows them"
    assert again.client.get("/api/sessions/s2/orders").json() == OWN | {"payload": "heads"}
    again.client.request("DELETE", "/api/sessions/s1")
    assert orders_of(again) == OWN


@pytest.mark.parametrize(
    ("orders", "what"),
    [
        ({"expression": "port nosuch"}, "the filter 'port nosuch' does not compile"),
        ({"expression": "port 80) or (tcp"}, "brackets of the filter 'port 80) or (tcp' do not match"),
        ({"payload": "all"}, "no payload policy 'all'"),
    ],
)
def test_wrong_orders_are_refused(tmp_path: Path, orders: dict[str, Any], what: str) -> None:
    bench = Bench(tmp_path)
    answer = bench.client.post("/api/sessions/s1/orders", json=orders)
    assert (answer.status_code, what in answer.json()["detail"]) == (400, True)
    assert orders_of(bench) == OWN


def test_an_agent_that_does_not_follow_is_said(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    agents = bench.client.app.state.agents
    agents.note(*KEY, report(recording=False, version=agents._version))
    assert [(each.state, each.problems) for each in agents.status()] == [("stopped", ())]
    agents.note(*KEY, report(refused="payload heads is more", version=agents._version))
    (agent,) = agents.status()
    assert (agent.state, agent.problems[0].remedy) == ("capturing", "payload heads is more")
