"""What each server of a trace is called: evidence first, never a port number.

1. What the operator calls it.
2. The software that its messages show (`services.toml`: clues and products). A relay passes on what it is asked and
   answered, so what it shares with the server that it alone asks for the same targets is not evidence of its own.
3. `host:port`.

Servers are one service if their software is of the kind that is (a store's nodes), or if they are seen to be replicas:
same port, same software as far as that is known, mostly the same hosts ask them, and for the same kinds of targets.
Without visible targets nothing shows that two servers do the same. Several such servers of no known software are
`port N`. Of software that makes several services each is called by its server, too: `redis cache:6379`.

Kinds of targets are compared word by word, as far as words repeat: where most of them differ they are data, and the
words before them were the kind. Targets that any server may be asked for (`/`, `/healthz`) do not count.

Cost: a few µs a server, and a comparison with each group of its port.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from collector import services
from collector.servers import Server
from collector.service_names import host_and_port
from collector.services import Product
from collector.store import ServiceInfo
from tracer.readers import Clue

ALIKE = 0.5
"""Share of callers, and of requests by kind, that replicas have in common."""
MOST_ASKED_BY = 0.5
"""Share of a server's connections that its relay makes."""
MOST_GROUPS = 64
"""Groups of one port that a server is compared with."""
MOST_WORDS = 4
"""Of a target, that are compared."""


@dataclass(slots=True)
class _Known:
    """A server, and the software that it may be, the most special first, with the clues that show it."""

    server: Server
    products: list[tuple[Product, tuple[str, ...]]] = field(default_factory=list)
    protocols: list[str] = field(default_factory=list)

    @property
    def product(self) -> Product | None:
        return self.products[0][0] if self.products else None


def name_services(servers: Sequence[Server], by_operator: Mapping[str, str]) -> tuple[ServiceInfo, ...]:
    """Names of `servers` of which anything is known; the others are `host:port`.

    Arguments: `by_operator`, names by `HOST:PORT`, beside those of the operator's file.
    """
    asked_for = dict(services.names_by_operator()) | dict(by_operator)
    by_port = services.ports_by_operator()
    own = [ServiceInfo(*_host_port(place), name, "named by the operator") for place, name in asked_for.items()]
    own += [ServiceInfo("", port, name, "named by the operator") for port, name in by_port.items()]
    named = {(each.host, each.port) for each in own}
    rest = [each for each in servers if each.key not in named and each.port not in by_port]
    known = [_known(server) for server in rest]
    _drop_neighbours(known)
    _drop_relayed(known)
    _join_their_port(known)
    return (*own, *_named(known, {each.name for each in own}))


def _host_port(place: str) -> tuple[str, int]:
    host, _, port = place.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _known(server: Server) -> _Known:
    known = _Known(server)
    clues = services.clues()
    place = {name: number for number, name in enumerate(clues)}
    is_http = server.requests_count + server.answers_count > 0
    for product in services.products():
        for seen in product.seen:
            shares = [_share(server, clues[name], server.counts[place[name]], is_http) for name in seen]
            if all(shares) and max(shares) >= product.least:
                if product.protocol:
                    known.protocols.append(product.name)
                else:
                    known.products.append((product, seen))
                break
    return known


def _share(server: Server, clue: Clue, count: int, is_http: bool) -> float:
    """Of the messages that could show the clue; what is no message of HTTP counts where HTTP was not seen."""
    if clue.begins:
        return 0.0 if is_http else float(count > 0)
    return count / max(server.requests_count if clue.from_client else server.answers_count, 1)


def _drop_neighbours(known: Sequence[_Known]) -> None:
    """Leave out software that must be beside other software, where that is not on its host."""
    present = {(each.server.host, product.name) for each in known for product, _ in each.products[:1]}
    for each in known:
        host = each.server.host
        each.products = [
            (product, seen)
            for product, seen in each.products
            if not product.beside or (host, product.beside) in present
        ]


def _drop_relayed(known: Sequence[_Known]) -> None:
    """Leave out what a relay only passes on.

    A server is a relay of another if its host makes most of the other's connections, the other's host does not ask it,
    and both are asked for the same. The nodes of a store ask each other, too: of such software, only a server at
    another port that alone asks, for targets that are seen, is a relay.
    """
    asked_by = defaultdict[str, list[_Known]](list)
    for each in known:
        total = sum(each.server.callers.values())
        for caller, count in each.server.callers.items():
            if count >= MOST_ASKED_BY * total:
                asked_by[caller].append(each)
    kept = []
    for each in known:
        behind = [
            other
            for other in asked_by.get(each.server.host, [])
            if other is not each and other.server.host not in each.server.callers and _relays(each.server, other.server)
        ]
        theirs = {
            product.name
            for other in behind
            for product, _ in other.products
            if not product.one or _alone_asks(each.server, other.server)
        }
        kept.append([one for one in each.products if one[0].name not in theirs])
    for each, products in zip(known, kept, strict=True):
        each.products = products


def _join_their_port(known: Sequence[_Known]) -> None:
    """Give a server that was hardly asked the software of all others at its port, if it shows a part of what shows it.

    Only of software whose servers are one service: a store's nodes listen at one port, and a cut head shows little.
    """
    place = {name: number for number, name in enumerate(services.clues())}
    at_port = defaultdict[int, list[_Known]](list)
    for each in known:
        at_port[each.server.port].append(each)
    for group in at_port.values():
        names = {each.product.name for each in group if each.product}
        if len(names) != 1 or all(each.product for each in group):
            continue
        usual = [product for product in services.products() if product.one and product.name in names]
        for each in (each for each in group if not each.product):
            seen: list[tuple[Product, tuple[str, ...]]]
            seen = [(product, (clue,)) for product in usual for of in product.seen for clue in of]
            each.products = [one for one in seen if each.server.counts[place[one[1][0]]]][:1]


def _alone_asks(front: Server, behind: Server) -> bool:
    others = [caller for caller in behind.callers if caller != front.host]
    return front.port != behind.port and bool(front.sample) and not others


def _relays(front: Server, behind: Server) -> bool:
    """Whether both are asked for the same, or that cannot be seen."""
    if not front.sample or not behind.sample:
        return not front.sample and not behind.sample
    return bool(set(front.sample) & set(behind.sample)) or _kinds_alike(front.sample, behind.sample)


def _named(known: Sequence[_Known], taken: Iterable[str]) -> list[ServiceInfo]:
    groups = _groups(known)
    of_product = Counter(each[0].product.name for each in groups if each[0].product)
    of_port = Counter(each[0].server.port for each in groups if not each[0].product and len(each) > 1)
    found = []
    for group in groups:
        product, (first, *others) = group[0].product, sorted(each.server.key for each in group)
        place = host_and_port(*first) + (f"+{len(others)}" if others else "")
        name = place
        if product:
            name = product.name if of_product[product.name] == 1 else f"{product.name} {place}"
        elif others and of_port[first[1]] == 1:
            name = f"port {first[1]}"
        if name in taken:  # the operator calls something else so
            name = f"{name} {place}" if name != place else f"server {place}"
        for each in group:
            words = _evidence(each, group)
            if name != host_and_port(*each.server.key) or words:
                found.append(ServiceInfo(*each.server.key, name, words))
    return found


def _groups(known: Sequence[_Known]) -> list[list[_Known]]:
    """Servers by service."""
    whole = defaultdict[str, list[_Known]](list)
    by_port = defaultdict[tuple[int, str], list[list[_Known]]](list)
    for each in known:
        product = each.product
        if product and product.one:
            whole[product.name].append(each)
            continue
        of_port = by_port[each.server.port, product.name if product else ""]
        mine = next((group for group in of_port[:MOST_GROUPS] if _are_replicas(group[0].server, each.server)), None)
        if mine is None:
            of_port.append([each])
        else:
            mine.append(each)
    return [*whole.values(), *(group for of_port in by_port.values() for group in of_port)]


def _are_replicas(one: Server, other: Server) -> bool:
    """Whether the same hosts ask both for the same kinds of targets."""
    if one.host == other.host:
        return False
    callers = [{caller for caller in each.callers if caller not in (one.host, other.host)} for each in (one, other)]
    if len(callers[0] & callers[1]) < ALIKE * len(callers[0] | callers[1]):
        return False
    return _kinds_alike(one.sample, other.sample)


def _kinds_alike(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether two samples of requests are of the same kinds; not where they show none."""
    common = services.common_targets()
    both = [[_words(text) for text in sample if text.partition(" ")[2] not in common] for sample in (one, other)]
    if not all(both):
        return False
    for length in range(1, MOST_WORDS + 1):
        counts = [Counter(words[:length] for words in each) for each in both]
        kinds = counts[0].keys() | counts[1].keys()
        if len(kinds) > (len(both[0]) + len(both[1])) / 2:  # they do not repeat: data
            return length > 1 or len(counts[0].keys() & counts[1].keys()) >= ALIKE * len(kinds)
        together = sum(min(counts[0][kind] / len(both[0]), counts[1][kind] / len(both[1])) for kind in kinds)
        if together < ALIKE:
            return False
    return True


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.partition(" ")[2].strip("/").split("/")[:MOST_WORDS])


def _evidence(each: _Known, group: Sequence[_Known]) -> str:
    """What shows the name, in words."""
    said = []
    if each.products:
        said.append(" and ".join(_words_of(services.clues()[name]) for name in each.products[0][1]))
    elif len(group) > 1:
        said.append(f"{len(group)} hosts are asked for the same kinds of targets by the same hosts")
    elif not each.protocols and (usual := services.usual_service(each.server.port)):
        said.append(f"no message shows which software it is; port {each.server.port} is usually {usual}")
    said += [f"speaks {protocol}" for protocol in each.protocols]
    return "; ".join(said)


def _words_of(clue: Clue) -> str:
    if clue.begins:
        return "sends its protocol's first bytes" if not clue.from_client else "is sent its protocol's first bytes"
    said = [f"is asked for {clue.targets[0]}"] if clue.targets else []
    if clue.header:
        name, value = clue.header
        said.append(f"{'is sent' if clue.from_client else 'answers with'} {name}: {value}…")
    return " with ".join(said[:1]) + (f", {said[1]}" if said[1:] else "") or f"is sent {', '.join(clue.methods)}"
