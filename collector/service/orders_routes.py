"""The routes of a session's orders (`collector.service.orders`)."""

from typing import Annotated

from fastapi import APIRouter, Path, Request

from collector.service.orders import Orders, SessionOrders

Session = Annotated[str, Path(description="Name of a capture that goes over several hosts")]

router = APIRouter()


def _orders(request: Request) -> SessionOrders:
    orders: SessionOrders = request.app.state.orders
    return orders


@router.get("/sessions/{session}/orders")
def get_orders(session: Session, request: Request) -> Orders:
    """Say what the agents of a session are to do."""
    return _orders(request).get(session)


@router.post("/sessions/{session}/orders")
def give_orders(session: Session, orders: Orders, request: Request) -> Orders:
    """Have all agents of a session capture or not, with this filter, payload policy and CPU budget beside their own."""
    _orders(request).give(session, orders)
    return orders
