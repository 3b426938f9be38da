"""The viewer's page in a browser: opening it, waiting until its picture is at rest, reading what it shows."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from playwright.sync_api import Locator, Page, Route

SETTLED = "count => window.twintap.settledCount > count && !window.twintap.state.moving"
FRAMES = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


def open_page(page: Page, url: str, address: str = "") -> None:
    """Load it and wait for the first settled picture."""
    page.goto(url + address)
    page.wait_for_function(SETTLED.replace("count =>", "() =>").replace("> count", "> 0"))


def act_and_settle(page: Page, act: Callable[[], object]) -> None:
    """Do something that changes the view, and wait until the picture is at rest again."""
    count = page.evaluate("window.twintap.settledCount")
    act()
    page.wait_for_function(SETTLED, arg=count)


class Held:
    """Requests of a page, by a pattern of URLs, that get no answer between `hold` and `release`.

    Made before the page is loaded: a browser begins to ask about requests some time after it was directed to.
    """

    def __init__(self, page: Page, pattern: str) -> None:
        self._holding, self._routes = False, list[Route]()
        page.route(pattern, self._take)

    def hold(self) -> None:
        self._holding = True

    def release(self) -> None:
        """Let go those that are held, and those that come from now on."""
        self._holding = False
        while self._routes:
            self._routes.pop().continue_()

    def _take(self, route: Route) -> None:
        if self._holding:
            self._routes.append(route)
        else:
            route.continue_()


@contextmanager
def leaving(page: Page) -> Iterator[None]:
    """A context at whose end the page asks its server nothing any more; entered after the server is up."""
    yield
    page.goto("about:blank")


def view(page: Page) -> tuple[float, float]:
    state = page.evaluate("[window.twintap.state.from, window.twintap.state.to]")
    return state[0], state[1]


def ink(page: Page, cls: int) -> int:
    """Pixels of the canvas in exactly the colour of a class of arrows."""
    return colour_ink(page, f"classes.{cls}")


def colour_ink(page: Page, name: str) -> int:
    """Pixels of the canvas in exactly a colour of the page's palette."""
    colour = page.evaluate("name => name.split('.').reduce((part, key) => part[key], window.twintap.palette)", name)
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return count_pixels(page, f"r === {red} && g === {green} && b === {blue} && a === 255")


def count_pixels(page: Page, test: str) -> int:
    """Pixels of the canvas that pass a test of JavaScript on `r`, `g`, `b` and `a`, each 0 to 255."""
    page.evaluate(FRAMES)
    return int(
        page.evaluate(
            f"""() => {{
                const canvas = document.getElementById("arrows"), copy = canvas.cloneNode();
                const context = copy.getContext("2d", {{ willReadFrequently: true }});
                context.drawImage(canvas, 0, 0);
                const {{ data }} = context.getImageData(0, 0, copy.width, copy.height);
                let found = 0;
                for (let at = 0; at < data.length; at += 4) {{
                    const [r, g, b, a] = [data[at], data[at + 1], data[at + 2], data[at + 3]];
                    found += {test};
                }}
                return found;
            }}"""
        )
    )


def arrow_point(page: Page, number: int) -> tuple[float, float]:
    """A point of the page on an arrow, a fifth along its way."""
    x, y = page.evaluate(
        """number => {
            const { state, makeView, arrowEnds, meta } = window.twintap;
            const canvas = document.getElementById("arrows"), box = canvas.getBoundingClientRect();
            const view = makeView(state.from, state.to, box.width, box.height, meta.rulerHeight, meta.lanes.length);
            const [x1, y1, x2, y2] = arrowEnds(view, state.data, state.data.number.indexOf(number));
            return [box.left + x1 + (x2 - x1) * 0.2, box.top + y1 + (y2 - y1) * 0.2];
        }""",
        number,
    )
    return x, y


def canvas_middle(page: Page) -> tuple[float, float]:
    box = page.locator("#arrows").bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def request_row(page: Page, number: int) -> Locator:
    return page.locator(f'#requests [data-request="{number}"]')
