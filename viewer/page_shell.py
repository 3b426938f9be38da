"""The HTML around a Dash application: it loads the page's scripts as modules, and begins Dash when they have run.

Dash itself would load each script of the assets folder as a classic one, so it is instructed to ignore them. A browser
fetches an entry's modules at once (`modulepreload`), rather than one level of imports after the other.
"""

import re
from functools import cache
from pathlib import Path

import dash

ASSETS = Path(__file__).parent / "assets"
MODULE_FOLDERS = ("app", "data", "draw", "page")
IMPORT = re.compile(r'^(?:import|export)\s[^;]*?from "(\.[^"]+)";', re.MULTILINE)
RENDERER = "document.addEventListener('DOMContentLoaded', () => { window.renderer = new DashRenderer(); });"
"""Modules run before this event, so what Dash calls in the browser is there."""
SHELL = """<!DOCTYPE html>
<html lang="en">
    <head>
        {{%metas%}}
        <title>{{%title%}}</title>
        {{%favicon%}}
        {{%css%}}
        {preloads}
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


def new_app(name: str, entry: str, title: str, **options: object) -> dash.Dash:
    """A Dash application whose page begins with the module `entry`."""
    app = dash.Dash(
        name,
        assets_folder=str(ASSETS),
        assets_path_ignore=[f"^{folder}$" for folder in MODULE_FOLDERS],
        serve_locally=True,
        title=title,
        update_title="",
        suppress_callback_exceptions=True,  # some components are there only at times
        **options,  # type: ignore[arg-type]
    )
    urls = [app.get_asset_url(module) for module in imported_modules(entry)]
    preloads = "\n        ".join(f'<link rel="modulepreload" href="{url}">' for url in urls)
    app.index_string = SHELL.format(preloads=preloads, entry=app.get_asset_url(entry))
    app.renderer = RENDERER
    return app


@cache
def imported_modules(entry: str) -> tuple[str, ...]:
    """All modules that an entry imports, directly or not, as paths within the assets."""
    found: dict[str, None] = {}
    waiting = [entry]
    while waiting:
        path = ASSETS / waiting.pop()
        for name in IMPORT.findall(path.read_text()):
            module = (path.parent / name).resolve().relative_to(ASSETS.resolve()).as_posix()
            if module not in found:
                found[module] = None
                waiting.append(module)
    return tuple(sorted(found))
