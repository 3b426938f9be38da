"""Names of services by the port that they listen on, kept as data in `services.toml`.

A name is a label on a lane or a row; nothing is reconstructed from it.
"""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files


@cache
def known_services() -> Mapping[int, str]:
    """Port to service name, as shipped."""
    document = tomllib.loads(files("collector").joinpath("services.toml").read_text(encoding="utf-8"))
    return {int(port): str(name) for port, name in document["ports"].items()}


def service_name(port: int, services: Mapping[int, str]) -> str:
    """Name of the service on `port`; `port N` where none is known."""
    return services.get(port, f"port {port}")
