"""Access lists: what they may say, whom they let in."""

import pytest

from storage_cluster.servers.http.messages import Refusal
from storage_cluster.servers.proxy import acl


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("", ""),
        (" a : b , c ,,", "a : b,c"),
        (".ref:*, .rlistings", ".r:*,.rlistings"),
        (".r:*.example.com,.referer: - bad.example.com", ".r:.example.com,.r:-bad.example.com"),
    ],
)
def test_a_list_is_kept_in_its_usual_spelling(text: str, cleaned: str) -> None:
    assert acl.clean(text, writing=False) == cleaned


@pytest.mark.parametrize("text", [".r:", ".r:.", ".r:-", ".R:*", ".x:y", "a,.r:"])
def test_a_list_that_says_nothing_sensible_is_refused(text: str) -> None:
    with pytest.raises(Refusal) as refused:
        acl.clean(text, writing=False)
    assert refused.value.status == 400


def test_nobody_writes_because_of_where_they_come_from() -> None:
    with pytest.raises(Refusal, match="not allowed in write ACL"):
        acl.clean(".r:*", writing=True)


@pytest.mark.parametrize(
    ("text", "referer", "allowed"),
    [
        (None, None, False),
        ("test", "http://a.com", False),
        (".r:*", None, True),
        (".r:a.com", "http://a.com/page", True),
        (".r:a.com", "http://x.a.com/page", False),
        (".r:.a.com", "http://x.a.com/page", True),
        (".r:.a.com", None, False),
        (".r:*,.r:-bad.com", "http://bad.com", False),
        (".r:-bad.com,.r:*", "http://bad.com", True),  # the last one that fits decides
        (".r:*", "http://[", True),
    ],
)
def test_who_comes_from_where(text: str | None, referer: str | None, allowed: bool) -> None:
    assert acl.lets_everybody(text, referer) is allowed


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("test", True),
        ("test:ann", True),
        ("*:ann", True),
        ("test:bob", False),
        ("*:bob", False),
        (".r:test", False),
        (None, False),
    ],
)
def test_a_user_is_named_by_account_or_name(text: str | None, named: bool) -> None:
    assert acl.names_user(text, {"test", "test:ann"}) is named


def test_an_accounts_list_is_json_of_roles() -> None:
    text = acl.clean_account('{"read-only": ["a:b"], "admin": []}')
    assert text == '{"admin":[],"read-only":["a:b"]}'
    assert acl.parse_account(text).read_only == {"a:b"}
    assert acl.clean_account("") == acl.clean_account("{}") == ""


@pytest.mark.parametrize("text", ["x", "[]", '{"owner": []}', '{"admin": "a"}', '{"admin": [1]}'])
def test_an_accounts_list_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(Refusal, match="X-Account-Access-Control invalid"):
        acl.clean_account(text)
