"""Pages held against axe-core, which knows what screen readers and keyboards need."""

from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page


def violations(page: Page) -> dict[str, Any]:
    """What axe-core finds wrong: each rule, with the elements."""
    found = Axe().run(page).response["violations"]
    return {rule["id"]: [node["html"][:200] for node in rule["nodes"]] for rule in found}
