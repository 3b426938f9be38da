"""The routes of triggers: to see them, and to fire one from outside (`collector.service.triggers`)."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request

from collector.service.triggers import Triggers, TriggerStatus
from collector.service.windows import Window

Name = Annotated[str, Path(description="Any name; a trigger of this name holds off as others do")]
OfSession = Annotated[str | None, Query(description="By default all that an agent captures for")]
Reason = Annotated[str, Query(max_length=500, description="Why, for those who look at the window")]

router = APIRouter()


def _triggers(request: Request) -> Triggers:
    triggers: Triggers = request.app.state.triggers
    return triggers


@router.get("/triggers")
def list_triggers(request: Request) -> list[TriggerStatus]:
    """Say how each trigger stands."""
    return _triggers(request).status()


@router.post("/triggers/{name}")
def call_trigger(name: Name, request: Request, session: OfSession = None, reason: Reason = "") -> list[Window]:
    """Keep the time before and after now, as a trigger does; no windows while it holds off. A body is ignored."""
    return _triggers(request).call(name, session, reason)
