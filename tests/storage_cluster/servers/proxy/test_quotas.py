"""Limits on containers and accounts."""

import pytest

from storage_cluster.servers.http.messages import Call, Identity
from storage_cluster.servers.proxy.context import ProxyContext
from storage_cluster.servers.proxy.infos import AccountInfo, ContainerInfo
from storage_cluster.servers.proxy.quotas import AccountQuotas, ContainerQuotas
from tests.helpers.fake_store import FakeStore, ask, call, through


class KnownInfos:
    """What the account and container servers would say."""

    def __init__(self, headers: dict[str, str]) -> None:
        self._headers = headers

    async def container(self, _: Call, __: str, ___: str, *, fresh: bool = False) -> ContainerInfo:
        return ContainerInfo(204, self._headers)

    async def account(self, _: Call, __: str, *, fresh: bool = False) -> AccountInfo:
        return AccountInfo(204, self._headers)


class KnownContext(ProxyContext):
    """A context that knows only infos."""

    def __init__(self, headers: dict[str, str]) -> None:
        self.infos = KnownInfos(headers)  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("headers", "size", "status"),
    [
        ({}, 100, 201),
        ({"X-Container-Meta-Quota-Bytes": "10", "X-Container-Bytes-Used": "4"}, 6, 201),
        ({"X-Container-Meta-Quota-Bytes": "10", "X-Container-Bytes-Used": "4"}, 7, 413),
        ({"X-Container-Meta-Quota-Count": "2", "X-Container-Object-Count": "1"}, 7, 201),
        ({"X-Container-Meta-Quota-Count": "2", "X-Container-Object-Count": "2"}, 7, 413),
    ],
)
def test_uploads_to_a_container(headers: dict[str, str], size: int, status: int) -> None:
    handler = through(ContainerQuotas(KnownContext(headers)), FakeStore())
    found = ask(handler, call("PUT /v1/a/c/o", body=bytes(size)))
    assert (found.status, found.body) == (status, b"" if status == 201 else b"Upload exceeds quota.")


@pytest.mark.parametrize(
    ("line", "headers", "status"),
    [
        ("POST /v1/a/c", {"X-Container-Meta-Quota-Bytes": "x"}, 400),
        ("PUT /v1/a/c", {"X-Container-Meta-Quota-Count": "-1"}, 400),
        ("PUT /v1/a/c", {"X-Container-Meta-Quota-Count": "7", "X-Container-Meta-Quota-Bytes": ""}, 201),
    ],
)
def test_container_quotas_are_numbers(line: str, headers: dict[str, str], status: int) -> None:
    assert ask(through(ContainerQuotas(KnownContext({})), FakeStore()), call(line, headers)).status in (status, 404)


@pytest.mark.parametrize(
    ("groups", "line", "asked", "status"),
    [
        ({"a"}, "PUT /v1/a", {"X-Account-Meta-Quota-Bytes": "10"}, 403),
        ({"a"}, "PUT /v1/a", {"X-Remove-Account-Meta-Quota-Bytes": "x"}, 403),
        ({"a"}, "PUT /v1/a", {"X-Account-Meta-Other": "10"}, 201),
        ({".reseller_admin"}, "PUT /v1/a", {"X-Account-Meta-Quota-Bytes": "x"}, 400),
        ({".reseller_admin"}, "PUT /v1/a", {"X-Account-Meta-Quota-Bytes": "10"}, 201),
        ({"a"}, "PUT /v1/a/c/o", {}, 413),
        ({".reseller_admin"}, "PUT /v1/a/c/o", {}, 201),
    ],
)
def test_account_quotas_are_the_resellers(groups: set[str], line: str, asked: dict[str, str], status: int) -> None:
    made = call(line, asked, b"12345")
    made.identity = Identity("t:u", frozenset(groups))
    known = {"X-Account-Meta-Quota-Bytes": "10", "X-Account-Bytes-Used": "6"}
    assert ask(through(AccountQuotas(KnownContext(known)), FakeStore()), made).status == status
