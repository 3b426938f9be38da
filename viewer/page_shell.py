"""The HTML around a Dash application, and the script and style sheet that it loads: one of each, made of the assets.

The page's scripts are ES modules, 44 of them for the timeline. Each request costs a browser and the server a
millisecond or two, so an entry and all that it imports are sent as one script: every module becomes a function that
returns what it exports, and comes after those that it imports. Invariants (tests/viewer/test_assets.py): imports make
no circle; only functions, constants and classes are exported, by their own names. Style sheets are joined likewise.
Both are named by their digest, so a browser keeps them until they change. Dash, which would load each script by itself
as a classic one, is instructed to ignore them, and begins when the entry has run.
"""

import hashlib
import re
from functools import cache
from pathlib import Path

import dash
from flask import Flask, Response, abort

ASSETS = Path(__file__).parent / "assets"
ENTRIES = {"main.js": "app/main.js", "pages.js": "app/pages.js", "days.js": "app/days.js"}
STYLES = "styles.css"
PLOTLY = r"plotly-cartesian\.min\.js"
JOINED_FOLDERS = ("app", "data", "draw", "page", "styles")
IMPORT = re.compile(r'^import \{([^}]*)\} from "([^"]+)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export ((?:async )?(?:function|const|class) (\w+))", re.MULTILINE)
ROUTE = "/assets/joined/<digest>/<name>"
FOREVER = "private, max-age=31536000, immutable"
RENDERER = "document.addEventListener('DOMContentLoaded', () => { window.renderer = new DashRenderer(); });"
"""The entry runs before this event, so what Dash calls in the browser is there."""
SHELL = """<!DOCTYPE html>
<html lang="en">
    <head>
        {{%metas%}}
        <title>{{%title%}}</title>
        {{%favicon%}}
        {{%css%}}
        <link rel="stylesheet" href="{styles}">
        <script type="module" src="{entry}"></script>
    </head>
    <body>
        {{%app_entry%}}
        <footer>
            {{%config%}}
            {{%scripts%}}
            {{%renderer%}}
        </footer>
    </body>
</html>"""


def new_app(
    name: str, entry: str, title: str, path: str = "/", base: str = "", *, with_figures: bool = True, **options: object
) -> dash.Dash:
    """A Dash application whose page loads an entry, a key of ENTRIES.

    Arguments: `path` below which its routes are; `base`, what stands before all paths where it is mounted;
    `with_figures`, that it loads Plotly at once, not when its script asks for it (`assets/page/plotly.js`).
    """
    app = dash.Dash(
        name,
        assets_folder=str(ASSETS),
        assets_ignore="" if with_figures else PLOTLY,
        assets_path_ignore=[f"^{folder}$" for folder in JOINED_FOLDERS],
        serve_locally=True,
        routes_pathname_prefix=path,
        requests_pathname_prefix=base + path,
        title=title,
        update_title="",
        suppress_callback_exceptions=True,  # some components are there only at times
        **options,  # type: ignore[arg-type]
    )
    app.index_string = SHELL.format(styles=url_of(STYLES), entry=url_of(entry))
    app.renderer = RENDERER
    return app


def add_joined_assets(server: Flask) -> None:
    """Serve the scripts and the style sheet."""

    @server.get(ROUTE)
    def joined_asset(digest: str, name: str) -> Response:
        if name not in (*ENTRIES, STYLES) or digest != _digest(name):
            abort(404, "there is no such script or style sheet")
        media_type = "text/css" if name == STYLES else "text/javascript"
        return Response(joined_text(name), mimetype=media_type, headers={"Cache-Control": FOREVER})


def url_of(name: str) -> str:
    """Where a script or the style sheet is served."""
    return ROUTE.replace("<digest>", _digest(name)).replace("<name>", name)


@cache
def joined_text(name: str) -> str:
    """The text of a script, with all that it imports, or of the style sheet."""
    if name == STYLES:
        return "\n".join(path.read_text() for path in sorted((ASSETS / "styles").glob("*.css")))
    return "\n".join(map(_as_function, modules_in_order(ENTRIES[name])))


def modules_in_order(entry: str) -> list[str]:
    """An entry and all that it imports, as paths within the assets, each after those that it imports itself."""
    order: dict[str, None] = {}

    def add(module: str) -> None:
        for _, name in IMPORT.findall((ASSETS / module).read_text()):
            if (imported := _path_of(module, name)) not in order:
                add(imported)
        order[module] = None

    add(entry)
    return list(order)


def _as_function(module: str) -> str:
    text = (ASSETS / module).read_text()
    exported = ", ".join(name for _, name in EXPORT.findall(text))
    text = IMPORT.sub(lambda found: f"const {{{found[1]}}} = {_variable(_path_of(module, found[2]))};\n", text)
    body = EXPORT.sub(r"\1", text)
    return f"const {_variable(module)} = (() => {{\n{body}return {{ {exported} }};\n}})();\n"


def _path_of(module: str, name: str) -> str:
    return (ASSETS / module).parent.joinpath(name).resolve().relative_to(ASSETS.resolve()).as_posix()


def _variable(module: str) -> str:
    return "module_" + module.removesuffix(".js").replace("/", "_")


@cache
def _digest(name: str) -> str:
    return hashlib.sha256(joined_text(name).encode()).hexdigest()[:16]
