"""What `kinds.py` says of a kind decides what becomes the cause of what."""

from importlib import import_module
from inspect import signature

import pytest

from collector.findings.causes import with_causes
from collector.findings.finding import Finding
from collector.findings.kinds import FAMILIES, KINDS
from collector.findings.observations import Observations
from collector.findings.thresholds import DEFAULTS

CALLERS = {"store": frozenset({"proxy"})}


def finding_of(kind: str, host: str, severity: str = "warning", service: str | None = None) -> Finding:
    return Finding(severity=severity, kind=kind, text="", remedy="", host=host, service=service)


def severities_and_causes(*findings: Finding) -> list[tuple[str, str | None]]:
    """Severity and cause of each."""
    return [(one.severity, one.cause) for one in with_causes(findings, CALLERS)]


def test_a_consequence_is_a_notice_that_names_its_cause() -> None:
    dead, slow = finding_of("server_died", "store"), finding_of("slow_replica", "store")
    assert severities_and_causes(slow, dead) == [("notice", "server_died on store"), ("warning", None)]


def test_a_cause_reaches_hosts_that_call_it_unless_the_kind_is_explained_there_only() -> None:
    dead = finding_of("server_died", "store")
    assert severities_and_causes(dead, finding_of("unanswered_request", "proxy"))[1] == (
        "notice",
        "server_died on store",
    )
    assert severities_and_causes(dead, finding_of("connection_unanswered", "proxy"))[1] == ("warning", None)
    assert severities_and_causes(dead, finding_of("unanswered_request", "client"))[1] == ("warning", None)


@pytest.mark.parametrize(
    ("cause", "expected"),
    [("server_died", ("warning", None)), ("host_starved", ("notice", "host_starved on store"))],
    ids=["of one service", "of the host"],
)
def test_a_kind_of_one_service_says_nothing_of_others(cause: str, expected: tuple[str, str | None]) -> None:
    other = finding_of("slow_replica", "store", service="database")
    assert severities_and_causes(finding_of(cause, "store", service="web"), other)[1] == expected


@pytest.mark.parametrize("name", [kind.name for kind in KINDS if kind.always_notice])
def test_what_is_always_a_notice_is_never_more(name: str) -> None:
    assert severities_and_causes(finding_of(name, "store")) == [("notice", None)]
    assert severities_and_causes(finding_of(name, "store", "info")) == [("info", None)]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_module_of_a_family_takes_its_own_group_of_thresholds(family: str) -> None:
    find = import_module(f"collector.findings.{family}").find
    limits = getattr(DEFAULTS, family, None)
    taken = [each.annotation for each in signature(find).parameters.values()]
    assert taken == [Observations] + ([] if limits is None else [type(limits)])
