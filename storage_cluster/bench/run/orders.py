"""What a worker is to do next: orders drawn from an operation's selectors, its scan, or the objects that exist.

A scan (init, prepare, cleanup, dispose) goes once over containers × objects; its division says which of the two the
workers share out. A mix draws each order by itself: `u` and `h` from the worker's own generator, `r` and `s` from one
sequence that all workers of this process go along. A population (ssbench) is the objects that exist now.
"""

import dataclasses
import random
from collections import deque
from collections.abc import Iterator

from storage_cluster.bench.model import Division, Kind, Operation
from storage_cluster.bench.run.schedule import order_of
from storage_cluster.bench.selectors import Next, Selector
from storage_cluster.bench.storage import Order


@dataclasses.dataclass(frozen=True)
class Place:
    """A worker among all workers of a work, over all drivers; from 0."""

    index: int
    count: int


@dataclasses.dataclass
class Population:
    """The objects of one class that exist, in the order in which they take turns."""

    objects: deque[tuple[str, str]] = dataclasses.field(default_factory=deque)
    made: list[tuple[str, str]] = dataclasses.field(default_factory=list)  # by the run itself: to be deleted after it
    next_number: int = 0  # of the next new object

    def turn(self) -> tuple[str, str] | None:
        """The object whose turn it is; None if there is none."""
        if not self.objects:
            return None
        self.objects.rotate(-1)
        return self.objects[-1]


class Shared:
    """What the workers of a run have in common: sequences and populations."""

    def __init__(self) -> None:
        self.populations: dict[str, Population] = {}
        self._sequences: dict[tuple[Operation, str], Next] = {}

    def population(self, name: str) -> Population:
        """The class of that name."""
        return self.populations.setdefault(name, Population())

    def chooser(self, operation: Operation, what: str, selector: Selector, rng: random.Random) -> Next:
        """A worker's own, or the one that all go along."""
        if selector.kind not in ("r", "s"):
            return selector.chooser(rng)
        key = (operation, what)
        if key not in self._sequences:
            self._sequences[key] = selector.chooser(rng)
        return self._sequences[key]


class Draw:
    """Orders of one operation of a mix, for one worker."""

    def __init__(self, operation: Operation, place: Place, rng: random.Random, shared: Shared) -> None:
        assert operation.objects or operation.kind is Kind.LIST
        self._operation = operation
        self._container = self._chooser("containers", operation.containers.selector, place, rng, shared)
        self._object: Next | None = None
        if operation.objects is not None:
            self._object = self._chooser("objects", operation.objects.selector, place, rng, shared)
        self._size: Next | None = None
        if operation.sizes is not None:
            self._size = shared.chooser(operation, "sizes", operation.sizes.selector, rng)

    def next(self) -> Order | None:
        """One more; None if there is nothing to do it on."""
        operation = self._operation
        container = operation.containers.name(self._container())
        name = operation.objects.name(self._object()) if operation.objects and self._object else ""
        return make_order(operation, operation.kind, container, name, self._size)

    def note_outcome(self, order: Order, succeeded: bool) -> None:
        """Ignore the outcome of an order: it does not change later ones."""

    def _chooser(self, what: str, selector: Selector, place: Place, rng: random.Random, shared: Shared) -> Next:
        divided = self._operation.division == what.removesuffix("s")
        if not divided:
            return shared.chooser(self._operation, what, selector, rng)
        own = selector.share(place.index, place.count) if selector.kind != "h" else selector
        return (own or selector).chooser(rng)


class DrawFromPopulation:
    """Orders on the objects that exist, and on new ones."""

    def __init__(self, operation: Operation, place: Place, rng: random.Random, shared: Shared) -> None:
        self._operation = operation
        self._place = place
        self._rng = rng
        self._population = shared.population(operation.population)
        self._size = operation.sizes.selector.chooser(rng) if operation.sizes else None

    def next(self) -> Order | None:
        """One more; None if there is nothing to do it on."""
        target = self._target()
        return make_order(self._operation, self._operation.kind, *target, self._size) if target else None

    def note_outcome(self, order: Order, succeeded: bool) -> None:
        """A new object exists from now on."""
        if succeeded and self._operation.objects is not None and order.kind is Kind.WRITE:
            self._population.objects.append((order.container, order.object))
            self._population.made.append((order.container, order.object))

    def _target(self) -> tuple[str, str] | None:
        population, names = self._population, self._operation.objects
        if self._operation.kind is Kind.DELETE:
            return population.objects.popleft() if population.objects else None
        if names is None:
            return population.turn()
        number = names.selector.low + population.next_number * self._place.count + self._place.index
        population.next_number += 1
        containers = self._operation.containers.selector
        return self._operation.containers.name(self._rng.randint(containers.low, containers.high)), names.name(number)


def scan(operation: Operation, place: Place, rng: random.Random, shared: Shared) -> Iterator[Order]:
    """A worker's part of what is gone over once."""
    if operation.planned:
        yield from map(order_of, operation.planned[place.index :: place.count])
        return
    size = operation.sizes.selector.chooser(rng) if operation.sizes else None
    for container, objects in _containers(operation, place, shared):
        if operation.make_container:
            yield make_order(operation, Kind.INIT, container, "", None)
        if operation.kind in (Kind.INIT, Kind.DISPOSE):
            yield make_order(operation, operation.kind, container, "", None)
        for name in objects:
            yield make_order(operation, operation.kind, container, name, size)
        if operation.delete_container:
            yield make_order(operation, Kind.DISPOSE, container, "", None)


def make_order(operation: Operation, kind: Kind, container: str, name: str, size: Next | None) -> Order:
    """An order of an operation."""
    return Order(
        kind,
        container,
        name,
        size() * operation.sizes.unit_bytes if size and operation.sizes else 0,
        operation.hash_check,
        operation.zeros,
        operation.chunked,
        operation.delete_after_s,
    )


def _containers(operation: Operation, place: Place, shared: Shared) -> Iterator[tuple[str, Iterator[str]]]:
    """Containers of a worker, each with the objects to do in it."""
    if operation.population:
        yield from _of_population(operation, place, shared)
        return
    containers: Selector | None = operation.containers.selector
    if operation.division is Division.CONTAINER or operation.objects is None:
        containers = operation.containers.selector.share(place.index, place.count)
    for number in _numbers(containers):
        yield operation.containers.name(number), _objects(operation, place)


def _objects(operation: Operation, place: Place) -> Iterator[str]:
    if operation.objects is None:
        return
    selector: Selector | None = operation.objects.selector
    if operation.division is Division.OBJECT:
        selector = operation.objects.selector.share(place.index, place.count)
    for number in _numbers(selector):
        yield operation.objects.name(number)


def _of_population(operation: Operation, place: Place, shared: Shared) -> Iterator[tuple[str, Iterator[str]]]:
    """Prepare: initial objects, spread over the containers in turn. Cleanup: what the run made itself."""
    if operation.kind is Kind.CLEANUP:
        made = shared.population(operation.population).made
        while made:
            container, name = made.pop()
            yield container, iter((name,))
        return
    assert operation.objects is not None
    containers = operation.containers.selector
    count = containers.high - containers.low + 1
    for number in _numbers(operation.objects.selector.share(place.index, place.count)):
        at = containers.low + (number - operation.objects.selector.low) % count
        yield operation.containers.name(at), iter((operation.objects.name(number),))


def _numbers(selector: Selector | None) -> range:
    return range(selector.low, selector.high + 1) if selector is not None else range(0)
