"""The page of a series: what it is answered, the way into periods, and the page in a browser."""

import gc
import re
import shutil
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from flask import Flask, Response
from playwright.sync_api import Page, expect
from werkzeug.test import Client

from collector.commands import replay
from collector.queries import SeriesView
from collector.series.series import Series
from testkit.days import BEGIN_NS, HOUR_NS, DaysRecipe, add_hours, write_days
from testkit.netsim import Network, NetworkPath, Station
from tests.helpers.viewer_server import serving_series
from viewer.access import Access
from viewer.days import routes
from viewer.days.periods import answer_below
from viewer.days.site import SeriesSite

MINUTE = 60
RECIPE = DaysRecipe(hours=20, classes=3, per_minute=60, slow_hour=12, failed_hours=(5,), nothing_hours=(7,))
BEGIN = BEGIN_NS // 10**9
LOCAL = "http://localhost"
SETTLED = "count => window.twintap && window.twintap.state.settledCount > count && !window.twintap.state.moving"
SHOWN_UNTIL = "end => { const { part } = window.twintap.state; return part.from + part.covered.length * 60 >= end; }"
TIMELINE = "() => window.twintap && window.twintap.settledCount > 0"


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty hours of summaries."""
    return write_days(tmp_path_factory.mktemp("days") / "summaries", RECIPE).place


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five periods of ten minutes with their traces; do not change it."""
    folder = tmp_path_factory.mktemp("kept")
    net = Network([Station("client", "10.0.0.1"), Station("server", "10.0.0.2")], NetworkPath(), 5)
    for number in range(50):
        net.connect("client", "server", 20_000 + number, 500, 2_000, at_ns=number * MINUTE * 10**9 + 1)
    net.run(10**15)
    net.write(folder)
    place = folder / "series"
    result = CliRunner().invoke(replay.command, ["--every", "10m", "--quiet", "-o", str(place), str(folder)])
    assert result.exit_code == 0, result.output
    return place


@pytest.fixture
def own(kept: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(kept, tmp_path / "series"))


def names(place: Path) -> list[str]:
    return [entry.period.name for entry in Series(place).entries()]


def client_of(place: Path, access: Access | None = None) -> tuple[Client, SeriesSite]:
    site = SeriesSite(SeriesView(place), access or Access())
    return Client(site), site


def test_the_page_is_answered_what_there_is(days: Path) -> None:
    client, _ = client_of(days)
    state = client.get("/api/series/state", base_url=LOCAL).json
    assert state is not None
    assert state["span"] == [BEGIN, BEGIN + 20 * 3600]
    assert [each["state"] for each in state["stretches"]] == ["summary", "failed", "summary", "nothing", "summary"]
    assert state["worst"][0]["words"] == "GET at swift-proxy on proxy1"
    again = client.get(f"/api/series/state?version={state['version']}", base_url=LOCAL).json
    assert again == {"version": state["version"], "trouble": ""}
    part = client.get(f"/api/series/part?from={BEGIN}&to={BEGIN + 6 * 3600}&host=proxy2", base_url=LOCAL).json
    assert part is not None
    assert (part["step"], len(part["covered"]), part["classes"]) == (60, 360, 1)
    assert part["covered"][5 * 60] == 0
    assert part["courses"][0]["percentiles"][0][5 * 60] is None


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/series/part", 400),
        ("/api/series/part?from=5&to=5", 400),
        ("/api/series/part?from=-1&to=5", 400),
        ("/api/series/part?from=0&to=9999999999", 400),
        ("/api/series/part?from=0&to=60&class=999999999&host=../../etc", 200),
        ("/api/series/periods/20200101T000000Z", 404),
        ("/api/nothing", 404),
        ("/period/20200101T000000Z/", 303),
        ("/period/..%2f..%2fetc/", 303),
        ("/period/20241004T000000Z/api/window?from=0&to=9", 410),
    ],
)
def test_what_is_asked_wrongly_is_refused(days: Path, path: str, status: int) -> None:
    client, site = client_of(days)
    assert client.get(path, base_url=LOCAL).status_code == status
    assert site.periods.names == []


def test_the_address_of_a_minute_leads_to_it_in_the_timeline(kept: Path) -> None:
    client, _ = client_of(kept)
    name = names(kept)[1]
    begin = Series(kept).entries()[1].from_ns // 10**9
    answer = client.get(f"/period/{name}/at/{begin + 4 * MINUTE}", base_url=LOCAL)
    found = re.fullmatch(rf"/period/{name}/#from=(\d+)&to=(\d+)", answer.headers["Location"])
    assert answer.status_code == 303
    assert found
    assert int(found[2]) - int(found[1]) == MINUTE * 10**9
    window = client.get(f"/period/{name}/api/window?from={found[1]}&to={found[2]}", base_url=LOCAL)
    assert window.status_code == 200
    assert client.get("/api/window?from=0&to=9", base_url=LOCAL).status_code == 404


def test_all_links_of_a_periods_viewer_stay_in_it(kept: Path) -> None:
    client, _ = client_of(kept)
    base = f"/period/{names(kept)[0]}"
    for path in ("/_dash-layout", "/pages/_dash-layout"):
        hrefs = re.findall(r'"href":\s*"([^"]*)"', client.get(base + path, base_url=LOCAL).text.replace("\\u002f", "/"))
        assert len(hrefs) >= 12
        assert [href for href in hrefs if href and not href.startswith(f"{base}/")] == []
    shown = {
        "output": "..content.children...top.children..",
        "outputs": [{"id": "content", "property": "children"}, {"id": "top", "property": "children"}],
        "inputs": [
            {"id": "address", "property": "pathname", "value": f"{base}/pages/requests"},
            {"id": "address", "property": "search", "value": ""},
        ],
        "changedPropIds": ["address.pathname"],
    }
    answer = client.post(f"{base}/pages/_dash-update-component", json=shown, base_url=LOCAL)
    hrefs = re.findall(r'"href":\s*"([^"]*)"', answer.text.replace("\\u002f", "/"))
    assert any("#request=" in href for href in hrefs)
    assert [href for href in hrefs if not href.startswith(f"{base}/")] == []


def test_a_redirect_of_a_periods_viewer_stays_in_it() -> None:
    app = Flask("period")
    app.add_url_rule(
        "/here/<int:number>", view_func=lambda number: Response(status=303, headers={"Location": f"/#{number}"})
    )
    name = "20261127T140000Z"
    client = Client(lambda environ, start: answer_below(app, name, environ, start))
    assert client.get(f"/period/{name}/here/7").headers["Location"] == f"/period/{name}/#7"


def test_a_few_periods_are_open_and_the_others_let_go(kept: Path) -> None:
    client, site = client_of(kept)
    first, *others = names(kept)
    assert client.get(f"/period/{first}/api/overview", base_url=LOCAL).status_code == 200
    app = weakref.ref(site.periods.app(Series(kept).entries()[0]))
    for name in others:
        assert client.get(f"/period/{name}/api/overview", base_url=LOCAL).status_code == 200
    assert site.periods.names == others[-3:]
    gc.collect()
    assert app() is None
    assert client.get(f"/period/{first}/api/overview", base_url=LOCAL).status_code == 200
    assert site.periods.names == [*others[-2:], first]


def test_where_a_trace_is_gone_its_summary_is_shown(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "LOOK_SECONDS", 0.0)
    client, _ = client_of(own)
    first, second, third, *_ = names(own)
    assert client.get(f"/period/{second}/", base_url=LOCAL).status_code == 200
    Series(own).remove_trace(Series(own).entries()[1].period)
    for path in (f"/period/{second}/", f"/period/{second}/at/5", f"/period/{first}/next", f"/period/{third}/previous"):
        answer = client.get(path, base_url=LOCAL)
        assert (answer.status_code, answer.headers["Location"]) == (303, f"/#period={second}"), path
    assert client.get(f"/period/{second}/api/overview", base_url=LOCAL).status_code == 410
    assert client.get(f"/period/{second}/next", base_url=LOCAL).headers["Location"] == f"/period/{third}/"
    words = client.get(f"/api/series/periods/{second}", base_url=LOCAL).text
    assert "Its trace was removed" in words
    assert "Where the time went" in words


def test_a_trace_that_cannot_be_opened_is_named(own: Path) -> None:
    name = names(own)[0]
    (own / name / "hops.parquet").unlink()
    client, site = client_of(own)
    answer = client.get(f"/period/{name}/", base_url=LOCAL)
    assert answer.status_code == 503
    assert "cannot be opened" in answer.text
    assert site.periods.names == []


def test_without_the_token_no_period_is_opened(kept: Path) -> None:
    client, site = client_of(kept, Access("secret"))
    name = names(kept)[0]
    for path in ("/", f"/period/{name}/", f"/period/{name}/api/overview", f"/period/{name}/next", "/api/series/state"):
        assert client.get(path, base_url=LOCAL).status_code == 401, path
    assert site.periods.names == []
    headers = {"Authorization": "Bearer secret"}
    assert client.get(f"/period/{name}/api/overview", base_url=LOCAL, headers=headers).status_code == 200
    other, _ = client_of(kept)
    assert other.get(f"/period/{name}/", base_url="http://evil.example").status_code == 403


@pytest.fixture(scope="module")
def days_url(days: Path) -> Iterator[str]:
    with serving_series(days) as (url, _):
        yield url


@pytest.fixture(scope="module")
def kept_url(kept: Path) -> Iterator[str]:
    with serving_series(kept) as (url, _):
        yield url


def open_days(page: Page, url: str, address: str = "") -> None:
    page.goto(url + address)
    page.wait_for_function(SETTLED, arg=0)


def act_and_settle(page: Page, key: str) -> None:
    count = page.evaluate("window.twintap.state.settledCount")
    page.keyboard.press(key)
    page.wait_for_function(SETTLED, arg=count)


def view(page: Page) -> tuple[float, float]:
    found: tuple[float, float] = page.evaluate("[window.twintap.state.from, window.twintap.state.to]")
    return found


@pytest.mark.browser
def test_one_steps_to_the_slow_minutes_and_reads_what_is_left(page: Page, days_url: str) -> None:
    open_days(page, days_url)
    expect(page.locator("#days-title")).to_contain_text("slow minutes")
    page.locator("#days-worst button").first.click()
    expect(page.locator("#days-period h2")).to_have_text("2024-10-04 12:00 to 13:00 UTC")
    expect(page.locator("#days-period")).to_contain_text("Its trace was removed")
    expect(page.locator("#days-period")).to_contain_text("storage1 waited for its disk")
    assert "period=20241004T120000Z" in page.url
    begin, end = view(page)
    assert begin < BEGIN + 12.5 * 3600 < end
    act_and_settle(page, "End")
    assert view(page)[1] >= BEGIN + 20 * 3600
    act_and_settle(page, "n")
    at = page.evaluate("window.twintap.state.cursor")
    act_and_settle(page, "N")
    assert page.evaluate("window.twintap.state.cursor") < at
    page.keyboard.press("Escape")
    expect(page.locator("#days-period")).to_be_empty()


@pytest.mark.browser
def test_the_view_is_in_the_address_and_the_choice_too(page: Page, days_url: str) -> None:
    open_days(page, days_url, "#from=2024-10-04T04:00&to=2024-10-04T08:00&host=proxy2&show=latency,failed")
    assert view(page) == [BEGIN + 4 * 3600, BEGIN + 8 * 3600]
    assert page.evaluate("window.twintap.state.part.step") == 60
    assert page.evaluate("window.twintap.state.part.courses.map(each => each.words)") == [
        "PUT at swift-proxy on proxy2"
    ]
    expect(page.locator("[data-show=packets]")).to_have_attribute("aria-pressed", "false")
    act_and_settle(page, "+")
    begin, end = view(page)
    assert (begin + end) / 2 == pytest.approx(BEGIN + 6 * 3600, abs=1)
    assert end - begin == pytest.approx(0.6 * 4 * 3600)
    act_and_settle(page, "ArrowRight")
    assert view(page)[0] == pytest.approx(begin + 0.2 * (end - begin), abs=1)
    url, there = page.url, view(page)
    page.reload()
    page.wait_for_function(SETTLED, arg=0)
    assert page.url == url
    assert view(page) == pytest.approx(there, abs=MINUTE)
    page.select_option("#days-host", "proxy1")
    page.wait_for_function("() => window.twintap.state.part.courses.length === 2")


@pytest.mark.browser
def test_a_minute_opens_in_its_periods_timeline_and_two_tabs_do_not_mix(page: Page, kept_url: str, kept: Path) -> None:
    first, second, *_ = names(kept)
    open_days(page, kept_url)
    box = page.locator("#days-picture").bounding_box()
    assert box is not None
    at = Series(kept).entries()[1].from_ns // 10**9 + 3.5 * MINUTE
    x = page.evaluate(
        """at => {
            const { state, gutter } = window.twintap, left = gutter(), room = window["days-picture"].clientWidth - left;
            return left + ((at - state.from) / (state.to - state.from)) * room;
        }""",
        at,
    )
    page.mouse.click(box["x"] + x, box["y"] + 100)
    page.wait_for_url(f"**/period/{second}/**")
    page.wait_for_function(TIMELINE)
    assert page.evaluate("window.twintap.state.to - window.twintap.state.from") == pytest.approx(MINUTE * 1e9)
    other = page.context.new_page()
    other.goto(f"{kept_url}period/{first}/")
    other.wait_for_function(TIMELINE)
    for each, name in ((page, second), (other, first)):
        each.reload()
        each.wait_for_function(TIMELINE)
        expect(each.locator(".brand")).to_contain_text(name)
    other.close()
    page.locator("#pages-nav a", has_text="Latency").click()
    page.wait_for_url(f"**/period/{second}/pages/latency")
    expect(page.locator("#content h1")).to_have_text("Latency")
    page.locator("#pages-nav a", has_text="Requests").click()
    page.wait_for_url(f"**/period/{second}/pages/requests")
    page.locator("#request-table tbody a").first.click()
    page.wait_for_url(f"**/period/{second}/#*request=*")
    page.wait_for_function(TIMELINE)
    page.locator("#pages-nav a", has_text="period before").click()
    page.wait_for_url(f"**/period/{first}/**")
    page.wait_for_function(TIMELINE)
    page.locator("#pages-nav a", has_text="Days").click()
    page.wait_for_url(f"{kept_url}#*period={first}*")
    page.wait_for_function(SETTLED, arg=0)
    expect(page.locator("#days-period a")).to_have_attribute("href", f"/period/{first}/")


@pytest.mark.browser
def test_at_the_edge_of_a_periods_timeline_one_goes_on(page: Page, kept_url: str, kept: Path) -> None:
    first, second, *_ = names(kept)
    page.goto(f"{kept_url}period/{first}/#from=60000000000&to=90000000000")
    page.wait_for_function(TIMELINE)
    expect(page.locator("#next-period")).not_to_be_visible()
    page.evaluate(
        "location.hash = `from=${window.twintap.meta.duration - 30e9}&to=${window.twintap.meta.duration + 30e9}`"
    )
    expect(page.locator("#next-period")).to_be_visible()
    expect(page.locator("#previous-period")).not_to_be_visible()
    page.locator("#next-period").click()
    page.wait_for_url(f"**/period/{second}/#from=0&to=*")
    page.wait_for_function(TIMELINE)
    expect(page.locator("#previous-period")).to_be_visible()
    expect(page.locator(".brand")).to_contain_text(second)


@pytest.mark.browser
def test_the_page_follows_a_series_that_grows(page: Page, tmp_path: Path) -> None:
    recipe = replace(RECIPE, hours=3, failed_hours=(), nothing_hours=())
    series = write_days(tmp_path / "series", recipe)
    with serving_series(series.place) as (url, _):
        open_days(page, url)
        add_hours(series, replace(recipe, hours=4), 3)
        page.wait_for_function("end => window.twintap.state.span[1] === end", arg=BEGIN + 4 * 3600)
        page.wait_for_function(SHOWN_UNTIL, arg=BEGIN + 4 * 3600)
        assert page.evaluate("window.twintap.state.span") == [BEGIN, BEGIN + 4 * 3600]
        page.goto("about:blank")


@pytest.mark.browser
def test_a_series_that_has_no_period_yet_says_so(page: Page, tmp_path: Path) -> None:
    with serving_series(Series.make(tmp_path / "series", HOUR_NS).place) as (url, _):
        page.goto(url)
        expect(page.locator("#days-title")).to_contain_text("No period yet")
        page.goto("about:blank")
