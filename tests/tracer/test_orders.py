"""A collector's orders: followed within what the agent's operator allows, and never beyond."""

from typing import Any

import pytest

from tracer.agent import CaptureOptions
from tracer.errors import InputError
from tracer.orders import Orders, Steering, bounded_options, bounded_payload, combined_filter, read_orders


@pytest.mark.parametrize(
    ("allowed", "asked", "expected"),
    [
        ("heads", "", "heads"),
        ("heads", "heads", "heads"),
        ("heads", "none", "none"),
        ("heads", "64", None),
        ("none", "heads", None),
        ("none", "1", None),
        ("100", "99", "99"),
        ("100", "100", "100"),
        ("100", "101", None),
        ("100", "heads", None),
        ("65535", "heads", None),
        ("heads", "everything", None),
        ("100", "-5", None),
    ],
)
def test_payload_is_never_more_than_allowed(allowed: str, asked: str, expected: str | None) -> None:
    if expected is not None:
        assert bounded_payload(allowed, asked) == expected
    else:
        with pytest.raises(InputError):
            bounded_payload(allowed, asked)


@pytest.mark.parametrize(
    ("own", "asked", "expected"),
    [("", "", ""), ("port 80", "", "port 80"), ("", "port 1", "port 1"), ("a or b", "c or d", "(a or b) and (c or d)")],
)
def test_a_filter_holds_beside_the_agents_own(own: str, asked: str, expected: str) -> None:
    assert combined_filter(own, asked) == expected


@pytest.mark.parametrize(("own", "asked", "expected"), [(0, 0, 0), (5, 0, 5), (0, 3, 3), (5, 3, 3), (3, 5, 3)])
def test_of_two_cpu_budgets_the_smaller_holds(own: float, asked: float, expected: float) -> None:
    options = CaptureOptions(("eth0",), "db1", cpu_percent=own)
    assert bounded_options(options, Orders(cpu_percent=asked)).cpu_percent == expected


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"received_ns": 1}, None),
        ({"orders": None}, None),
        ({"orders": {"recording": 1, "expression": "", "payload": ""}}, None),
        ({"orders": {"recording": False, "expression": "", "payload": "none", "more": 1}}, Orders(False, "", "none")),
        ({"orders": {"recording": True, "expression": "", "payload": "", "cpu_percent": 5}}, Orders(cpu_percent=5)),
        ({"orders": {"recording": True, "expression": "", "payload": "", "cpu_percent": -1}}, Orders()),
        ({"orders": {"recording": True, "expression": "", "payload": "", "cpu_percent": "5"}}, Orders()),
    ],
)
def test_orders_in_an_answer(answer: dict[str, Any], expected: Orders | None) -> None:
    assert read_orders(answer) == expected


class Agent:
    """The steering of an agent that was started with a filter, and what it reports."""

    def __init__(self, payload: str = "heads") -> None:
        self.reported: list[tuple[str, str, bool, str]] = []
        options = CaptureOptions(("eth0",), "db1", payload=payload, expression="not port 22")
        self.steering = Steering(options, self.note)

    def note(self, options: CaptureOptions, recording: bool, refused: str) -> None:
        self.reported.append((options.expression, options.payload, recording, refused))


def test_an_agent_follows_each_order_once() -> None:
    agent = Agent()
    agent.steering.take(None)
    agent.steering.take(Orders())
    assert (agent.steering.turn, agent.reported) == (0, [])
    for _ in range(2):
        agent.steering.take(Orders(payload="none"))
    assert agent.steering.turn == 1
    agent.steering.take(Orders(recording=False, payload="none"))
    assert (agent.steering.turn, agent.steering.is_recording) == (2, False)
    agent.steering.take(Orders())
    assert agent.reported == [
        ("not port 22", "none", True, ""),
        ("not port 22", "none", False, ""),
        ("not port 22", "heads", True, ""),
    ]


def test_an_order_beyond_the_bound_is_refused_whole_and_said() -> None:
    agent = Agent("none")
    agent.steering.take(Orders(payload="heads"))
    assert agent.steering.turn == 0
    assert agent.reported[0][:3] == ("not port 22", "none", True)
    assert agent.reported[0][3].startswith("payload heads is more than this agent's operator allowed (none)")
    agent.steering.take(Orders(recording=False, payload="heads"))
    assert not agent.steering.is_recording, "not to capture is within every bound"


@pytest.mark.parametrize("expression", ["port 80) or (port 22", "(port 80", "port nosuch", "tcp and"])
def test_a_filter_cannot_leave_its_brackets(expression: str) -> None:
    agent = Agent()
    agent.steering.take(Orders(expression=expression))
    assert agent.steering.turn == 0
    assert "does not compile" in agent.reported[0][3] or "brackets" in agent.reported[0][3]


def test_a_filter_is_followed() -> None:
    agent = Agent()
    agent.steering.take(Orders(expression="port 80 or port 22"))
    assert agent.steering.options.expression == "(not port 22) and (port 80 or port 22)"
