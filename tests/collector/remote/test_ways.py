"""Ways to hosts: the command lines that they make, and the names that they refuse."""

import shlex
from pathlib import Path

import pytest

from collector.remote.ways import (
    SSH_OPTIONS,
    Way,
    check_ways,
    docker_way,
    here_way,
    kubectl_way,
    nsenter_way,
    ssh_way,
)
from tracer.errors import InputError, MissingDependencyError

WORDS = ["sh", "-c", 'read -r n; echo "$n"']


@pytest.mark.parametrize(
    ("given", "host", "target"),
    [
        ("web1", "web1", "web1"),
        ("deploy@web1.example.org", "web1.example.org", "deploy@web1.example.org"),
        ("front=deploy@10.0.0.7", "front", "deploy@10.0.0.7"),
        ("ssh://deploy@web1:2222", "web1", "ssh://deploy@web1:2222"),
        ("six=fe80::1", "six", "fe80::1"),
    ],
)
def test_ssh_names_hosts_as_ssh_does(given: str, host: str, target: str) -> None:
    way = ssh_way(given)
    assert (way.host, way.target) == (host, target)
    argv = way.argv(WORDS)
    assert argv[0] == "ssh"
    assert argv[-3:-1] == ["--", target]
    assert shlex.split(argv[-1]) == ["exec", *WORDS], "a login shell there reads the words as they are"


def test_ssh_asks_nothing_and_reads_the_operators_configuration() -> None:
    argv = ssh_way("web1", Path("/own/config")).argv(WORDS)
    assert "BatchMode=yes" in argv
    assert argv[argv.index("-F") + 1] == "/own/config"
    assert "-F" not in ssh_way("web1").argv(WORDS)
    assert "StrictHostKeyChecking" not in " ".join(SSH_OPTIONS)


@pytest.mark.parametrize(
    ("way", "prefix"),
    [
        (kubectl_way("cart"), "kubectl exec --stdin --quiet cart --"),
        (kubectl_way("shop/cart"), "kubectl exec --stdin --quiet --namespace shop cart --"),
        (kubectl_way("shop/cart/app"), "kubectl exec --stdin --quiet --namespace shop --container app cart --"),
        (docker_way("cart"), "docker exec -i -- cart"),
        (nsenter_way("cart=41"), "nsenter --net=/proc/41/ns/net --"),
        (nsenter_way("cart"), "nsenter --net=/run/netns/cart --"),
        (here_way("cart"), ""),
    ],
    ids=lambda value: value.kind if isinstance(value, Way) else "",
)
def test_each_way_is_a_prefix(way: Way, prefix: str) -> None:
    assert way.host == "cart"
    assert way.argv(WORDS) == [*prefix.split(), *WORDS]


@pytest.mark.parametrize(
    "given", ["-oProxyCommand=touch x", "-oProxyCommand=x", "n=-oProxyCommand=x", "n=-l", "", "n=", "a b", "a\nb", "--"]
)
@pytest.mark.parametrize("way", [ssh_way, kubectl_way, docker_way, nsenter_way])
def test_what_looks_like_an_option_is_refused(way, given: str) -> None:
    with pytest.raises(InputError):
        way(given)


@pytest.mark.parametrize("given", ["a/b/c/d", "/cart", "shop/", "shop/-cart", "-n/cart"])
def test_what_is_no_pod_is_refused(given: str) -> None:
    with pytest.raises(InputError):
        kubectl_way(given)


def test_two_hosts_need_two_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    assert check_ways([ssh_way("web1"), ssh_way("web1"), ssh_way("db1")]) == (ssh_way("web1"), ssh_way("db1"))
    with pytest.raises(InputError, match="two hosts would be called web1: web1 and ops@web1; name one of them"):
        check_ways([ssh_way("web1"), ssh_way("ops@web1")])
    monkeypatch.setattr("shutil.which", lambda _name: None)
    with pytest.raises(MissingDependencyError, match="--kubectl needs kubectl"):
        check_ways([kubectl_way("shop/cart")])
