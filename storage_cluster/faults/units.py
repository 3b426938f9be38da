"""Parses quantities of the command line: `5s`, `1%`, `10mbit`, `100ppm`."""

import re
from collections.abc import Mapping

import click


class Quantity(click.ParamType):
    """A number with a unit, as a whole number of the smallest one (or a fraction)."""

    def __init__(self, name: str, units: Mapping[str, float], example: str, *, whole: bool = True) -> None:
        self.name = name
        self._units = units
        self._example = example
        self._whole = whole

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float | int:
        """The value in the smallest unit."""
        if not isinstance(value, str):
            assert isinstance(value, int | float)
            return value
        found = re.fullmatch(r"([+-]?\d*\.?\d+)\s*([a-z%]*)", value.strip().lower())
        if found is None or found[2] not in self._units:
            units = ", ".join(unit or "(none)" for unit in self._units)
            self.fail(f"{value!r} is no {self.name}; write it like {self._example} (units: {units})", param, ctx)
        scaled = float(found[1]) * self._units[found[2]]
        return round(scaled) if self._whole else scaled


DURATION = Quantity("duration", {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9, "m": 60e9}, "5s")  # in ns
RATE = Quantity("rate", {"bit": 1, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9}, "10mbit")  # in bits per second
DRIFT = Quantity("drift", {"ppb": 1, "ppm": 1e3}, "100ppm")  # in ppb
FRACTION = Quantity("fraction", {"": 1.0, "%": 0.01}, "5%", whole=False)
