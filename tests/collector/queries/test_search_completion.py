"""What the last word of a search may become."""

import pytest

from collector.queries import TraceSearch, open_trace
from collector.queries.search_completion import MEANINGS, PROTOCOL_WORDS, completions
from collector.queries.search_rules import RULES
from tests.helpers.script_traces import write_script_trace

SCRIPT = """
    client:40000 > proxy:8080
          0 > syn
         50 < syn_ack
        100 > 0:100 GET /a
       5000 < 0:50 503
    client:40001 > proxy:8080
      10000 > syn
      10050 < syn_ack
      10100 > 0:100 GET /b(1)
      10200 < 0:50 200
    proxy:40002 > storage:6200
      10110 > syn
      10120 < syn_ack
      10130 > 0:100 PUT /c
      10150 < 0:50 200
"""


@pytest.fixture(scope="module")
def search(tmp_path_factory: pytest.TempPathFactory) -> TraceSearch:
    place = str(tmp_path_factory.mktemp("traces") / "t")
    write_script_trace(place, SCRIPT)
    return TraceSearch(open_trace(place))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("host:", ["host:proxy", "host:client", "host:storage"]),
        ("HOST:PRO", ["HOST:proxy"]),
        ("host:rox", ["host:proxy"]),
        ("host:proxy", []),
        ("GET not (client:c", ["GET not (client:client"]),
        ("method:", ["method:GET", "method:PUT"]),
        ("http:p", ["http:PUT"]),
        ("redis:", []),
        ("path:/b", ['path:"/b(1)"']),
        ('path:"/b', ['path:"/b(1)"']),
        ("status:2", ["status:200"]),
        ("status:e", ["status:error", "status:client_error", "status:refused", "status:server_error"]),
        ("outcome:f", ["outcome:failed"]),
        ("port:", ["port:8080", "port:6200"]),
        ("pr", ["proxy", "process:"]),
        ("st", ["storage", "status:", "stream:"]),
        ("lo", ["log:", "lost"]),
        ("nothing:", []),
        ("zzz", []),
    ],
)
def test_completions(search: TraceSearch, text: str, words: list[str]) -> None:
    found = [each.text for each in search.completions(text)]
    assert found == words
    assert not any(search.hits(each).problem for each in found if "not (" not in each and not each.endswith(":"))


def test_every_prefix_has_a_meaning() -> None:
    assert RULES.keys() - PROTOCOL_WORDS == MEANINGS.keys() - PROTOCOL_WORDS
    assert MEANINGS.keys() <= RULES.keys()


def test_an_empty_search_offers_the_language(search: TraceSearch) -> None:
    found = search.completions("")
    assert found[0].text == ">10ms"
    assert all(each.meaning for each in found)
    assert [each.text for each in search.completions("GET ")][:3] == ["GET >10ms", "GET >1MB", "GET not "]


def test_without_the_texts_of_a_trace_the_language_is_offered() -> None:
    assert [each.text for each in completions("GET not outcome:f", None)] == ["GET not outcome:failed"]
    assert [each.text for each in completions("ho", None)] == ["host:"]
    assert completions("host:", None) == []
