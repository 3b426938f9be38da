"""The language of searches: how words are joined, and where an error is."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.queries import TraceSearch, open_trace
from collector.queries.search import check_search
from collector.queries.search_language import WordError, parse_search
from tests.helpers.script_traces import write_script_trace
from tracer.errors import InputError


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("a", "a"),
        ("a b", "a and b"),
        ("a AND b", "a and b"),
        ("a or b c", "a or (b and c)"),
        ("(a or b) c", "(a or b) and c"),
        ("not a b", "not a and b"),
        ("not (a b)", "not (a and b)"),
        ("not not a", "not not a"),
        ("a or not b or c", "a or not b or c"),
        ("/x(1) (b)", "/x(1) and b"),
        ("(/x(1))", "/x(1)"),
        ("((a))", "a"),
        ('"a b" c', '"a b" and c'),
        ('path:"a b"', 'path:"a b"'),
        ('"or"', '"or"'),
        ('"not closed', '"not closed"'),
        ("  a\tb\n", "a and b"),
        ("10.0.0.1:80 >5ms", "10.0.0.1:80 and >5ms"),
    ],
)
def test_a_text_is_read(text: str, read: str) -> None:
    assert str(parse_search(text)) == read


@pytest.mark.parametrize(
    ("text", "at", "words"),
    [
        ("", 0, "a word is missing"),
        ("a or", 4, "a word is missing"),
        ("or a", 0, "a word is missing"),
        ("a and or b", 6, "a word is missing"),
        ("not", 3, "a word is missing"),
        ("()", 1, "a word is missing"),
        ("a (b", 2, "not closed"),
        ("a b)", 3, "nothing is open"),
        ("(" * 60 + "a" + ")" * 60, 51, "more than 50"),
        ("a status:fine", 9, "'fine' is no status"),
        ("a packet:slow", 9, "'slow' is no packet"),
        ("a foo:b", 2, "nothing is searched by 'foo'"),
        ("a not >soon", 6, "'>soon' is no duration"),
        ('a path:""', 7, "'' is no path"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, at: int, words: str) -> None:
    with pytest.raises(WordError, match=words.replace("(", r"\(")) as error:
        check_search(text)
    assert error.value.at == at
    assert error.value.remedy


@given(st.text(alphabet='ab ()"not r:>5', max_size=30))
def test_any_text_is_read_or_refused_and_reads_the_same_again(text: str) -> None:
    try:
        part = parse_search(text)
    except WordError as error:
        assert 0 <= error.at <= len(text)
    else:
        assert parse_search(str(part)) == parse_search(str(parse_search(str(part))))


SCRIPT = """
    client:40000 > proxy:8080
          0 > syn
         50 < syn_ack
        100 > 0:100 GET /photos/1
       5000 < 0:50 503
    client:40001 > proxy:8080
      10000 > syn
      10050 < syn_ack
      10100 > 0:100 PUT /photos/2
      10200 < 0:50 201
    client:40002 > proxy:8080
      20000 > syn
      20050 < syn_ack
      20100 > 0:100 GET /lost/3
      20200 < 0:5000 404
"""


@pytest.fixture(scope="module")
def search(tmp_path_factory: pytest.TempPathFactory) -> TraceSearch:
    place = str(tmp_path_factory.mktemp("traces") / "t")
    write_script_trace(place, SCRIPT)
    return TraceSearch(open_trace(place))


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("GET or PUT", [0, 1, 2]),
        ("not GET", [1]),
        ("GET not status:5xx", [2]),
        ("status:4xx or status:201", [1, 2]),
        ("(status:404 or status:503) /photos", [0]),
        ('"GET /photos"', [0]),
        ('"/photos GET"', []),
        ("photos and not (put or get)", []),
        ("port:8080", [0, 1, 2]),
        ("port:40001", [1]),
        ("client:client server:proxy", [0, 1, 2]),
        ("client:proxy", []),
        (">4KiB", [2]),
        ("<=100B", [0, 1]),
        (">=4.9ms", [0]),
        ("not >1ms", [1, 2]),
        ("lost", [2]),  # as text; none was lost
        ("packet:lost", []),
        ("not packet:lost", [0, 1, 2]),
        ("packet:syn", [0, 1, 2]),
        ("retransmitted", []),
    ],
)
def test_joined_words_find_requests(search: TraceSearch, query: str, found: list[int]) -> None:
    assert search.requests(query).tolist() == found


def test_negation_is_of_what_a_word_is_about(search: TraceSearch) -> None:
    assert search.hits("not >1ms").connections.tolist() == []
    assert search.hits("not host:nobody").count == 3


def test_a_wrong_search_names_the_character(search: TraceSearch) -> None:
    assert search.hits("GET (").problem.startswith("character 6: a word is missing")
    with pytest.raises(InputError, match=r"search 'GET \(': character 6"):
        search.requests("GET (")


def test_requests_with_lost_packets_and_where_something_was_found(tmp_path: Path) -> None:
    put = "10100 > 0:100 {}PUT /photos/2"
    twice = f"{put.format('lost ')}\n      {put.format('#2 ').replace('10100', '10150')}"
    write_script_trace(str(tmp_path / "t"), SCRIPT.replace(put.format(""), twice))
    search = TraceSearch(open_trace(str(tmp_path / "t")))
    assert search.requests("lost PUT").tolist() == search.requests("packet:lost").tolist() == [1]
    assert search.requests("retransmitted").tolist() == [1]
    assert search.requests("finding:packet_loss").tolist() == [1]
    assert search.requests("finding:server_error").tolist() == [0]
    assert search.requests("finding:server_silent or finding:tail").tolist() == [1]


def test_a_finding_finds_nothing_at_other_hosts(tmp_path: Path) -> None:
    elsewhere = """
    client:40009 > other:8080
          0 > syn
         50 < syn_ack
        100 > 0:100 GET /elsewhere
       4900 < 0:50 200
"""
    write_script_trace(str(tmp_path / "t"), SCRIPT + elsewhere)
    search = TraceSearch(open_trace(str(tmp_path / "t")))
    assert search.requests("finding:server_error").tolist() == search.requests("status:503").tolist()
    assert len(search.requests("/elsewhere")) == 1
