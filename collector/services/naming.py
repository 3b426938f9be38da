"""Names each server of a trace by evidence, never by its port number alone.

1. By the operator's name.
2. By the software that its messages show (`services.toml`: clues and products). A relay forwards requests and answers.
   So evidence that it shares with the server behind it, which only the relay calls, for the same targets, does not
   count as the relay's own.
3. By the process that owns it, as an agent on its host says (`collector.services.owner_names`).
4. If its clients of TLS all ask for one name of several labels (SNI), by that name: weaker evidence, since it is what
   clients believe, and a balancer may have it in common with the servers behind it. Of several that are asked for by
   the same name, none is named by it.
5. As `host:port`; of a host that was not captured, the name of its address if it has one of its own.

Servers form one service if their software does (the nodes of a store; nodes with no common caller that do not call each
other are several stores), or if they are proven replicas: same port, same software as far as known, mostly the same
callers, the same kinds of targets as far as visible, and the callers' requests go now to one, now to another
(`collector.services.choices`). Several such servers of unknown software are `port N`. If one software forms several
services, the server is part of the name: `redis cache:6379`.

Kinds of targets are compared word by word, as far as words repeat: if most words at a position differ, they are data,
and the words before them are the kind. Targets that any server may be asked for (`/`, `/healthz`) do not count.

Cost: a few µs a server, and a comparison with each group of its port.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from collector.capture_files.readers import Clue
from collector.services import services
from collector.services.choices import Watched
from collector.services.owner_names import owner_evidence, owner_name
from collector.services.servers import Server
from collector.services.service_names import host_and_port, place_of
from collector.services.services import Product
from collector.trace.model import AddressName, ServiceInfo
from collector.trace.peer_names import PeerNames

LEAST_COMMON_SHARE = 0.5
"""Least share of callers, and of requests by kind, that replicas have in common."""
RELAY_LEAST_SHARE = 0.5
"""Least share of a server's connections that its relay makes."""
MOST_GROUPS = 64
"""At most so many groups of a port are compared with a server."""
MOST_WORDS = 4
"""At most so many words of a target are compared."""
MOST_ASKED_SHOWN = 3
"""At most so many names that clients ask for are in the evidence."""
NAMED = "named by the operator"
AreReplicas = Callable[[str, str], bool]


class _Known(Struct):
    """A server, and the software that it may be, the most specific first, with the clues that show it."""

    server: Server
    products: list[tuple[Product, tuple[str, ...]]] = field(default_factory=list)
    protocols: list[str] = field(default_factory=list)
    forwarded: list[str] = field(default_factory=list)  # products whose evidence may be that of a server behind it

    @property
    def product(self) -> Product | None:
        return self.products[0][0] if self.products else None


def name_services(
    servers: Sequence[Server], by_operator: Mapping[str, str], are_replicas: AreReplicas
) -> tuple[ServiceInfo, ...]:
    """The names of `servers` with evidence; the others are `host:port`.

    Arguments: `by_operator`, names by `HOST:PORT`, in addition to those of the operator's file; `are_replicas`, whether
    two servers (`host:port`) are proven replicas (`Choices.are_replicas`).
    """
    own = _operators_names(by_operator)
    known = _candidates_of_all(servers, own)
    return (*own, *_service_infos(_groups(known, are_replicas), {each.name for each in own}))


def with_peer_names(
    services_: Sequence[ServiceInfo], servers: Sequence[Server], names: Sequence[AddressName], peers: PeerNames
) -> tuple[ServiceInfo, ...]:
    """The names of services with those of addresses in place of addresses, and of servers that have no other name.

    A name that several addresses have stands for none of them here: their servers may be different ones.
    """
    known, files = {(each.host, each.port) for each in services_}, {each.address: each.file for each in names}
    found = [replace(each, name=peers.in_text(each.name)) if each.evidence != NAMED else each for each in services_]
    for host, port in (each.key for each in servers):
        name = peers.of_one(host)
        if name and (host, port) not in known and ("", port) not in known:
            found.append(ServiceInfo(host, port, host_and_port(name, port), f"{host} is {name} in {files[host]}"))
    return tuple(found)


def servers_to_watch(servers: Sequence[Server], by_operator: Mapping[str, str]) -> Watched:
    """The exchanges that `collector.services.choices` needs to detect replicas: those of `servers` that share port and
    callers."""
    at_port = defaultdict[tuple[int, str], list[Server]](list)
    for each in _candidates_of_all(servers, _operators_names(by_operator)):
        if not (each.product and each.product.one):
            at_port[each.server.port, each.product.name if each.product else ""].append(each.server)
    wanted: list[Server] = []
    for group in at_port.values():
        callers = Counter(caller for each in group for caller in each.callers)
        several = {caller for caller, count in callers.items() if count > 1}
        asked = [each for each in group if several & each.callers.keys()]
        wanted += sorted(asked, key=lambda each: -each.callers.total())[:MOST_GROUPS]
    hosts = {caller for each in wanted for caller in each.callers if caller}
    return Watched(frozenset(host_and_port(*each.key) for each in wanted), frozenset(hosts))


def _operators_names(named: Mapping[str, str]) -> list[ServiceInfo]:
    names = dict(services.names_by_operator()) | dict(named)
    own = [ServiceInfo(*place_of(place), name, NAMED) for place, name in names.items()]
    return own + [ServiceInfo("", port, name, NAMED) for port, name in services.ports_by_operator().items()]


def _candidates_of_all(servers: Sequence[Server], own: Sequence[ServiceInfo]) -> list[_Known]:
    """The candidates of all servers that the operator does not name."""
    named = {(each.host, each.port) for each in own}
    known = [_candidates(each) for each in servers if each.key not in named and ("", each.port) not in named]
    _drop_neighbours(known)
    _drop_relayed(known)
    _join_their_port(known)
    return known


def _candidates(server: Server) -> _Known:
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
    """The share of messages with the clue, of those that could show it; other messages than HTTP's count only if the
    server showed no HTTP."""
    if clue.begins or clue.protocol:
        return 0.0 if is_http else float(count > 0)
    return count / max(server.requests_count if clue.from_client else server.answers_count, 1)


def _drop_neighbours(known: Sequence[_Known]) -> None:
    """Remove candidates that require other software on the same host if that is not there.

    A server's first candidate counts as there if it requires nothing, or something that is there.
    """
    settled: set[tuple[str, int]] = set()
    while True:
        there = [each for each in known if _is_there(each, settled)]
        present = {(each.server.host, each.product.name) for each in there if each.product}
        open_ = [each for each in known if each.product and not _is_there(each, settled)]
        found = {
            each.server.key for each in open_ if each.product and (each.server.host, each.product.beside) in present
        }
        settled |= found
        if found:
            continue
        if not open_:
            break
        for each in open_:
            del each.products[0]
    for each in known:
        rest = [one for one in each.products[1:] if not one[0].beside or (each.server.host, one[0].beside) in present]
        each.products = each.products[:1] + rest


def _is_there(each: _Known, settled: Collection[tuple[str, int]]) -> bool:
    """Whether a server's first candidate is confirmed."""
    return each.product is not None and (not each.product.beside or each.server.key in settled)


def _drop_relayed(known: Sequence[_Known]) -> None:
    """Remove candidates whose evidence a relay only forwards.

    A server is a relay of another if its host makes most of the other's connections, the other's host does not call it,
    and both get the same requests. The nodes of a store call each other, too: for such software, a relay must be at
    another port, be the only caller, and have visible targets.
    """
    asked_by = defaultdict[str, list[_Known]](list)
    for each in known:
        total = sum(each.server.callers.values())
        for caller, count in each.server.callers.items():
            if count >= RELAY_LEAST_SHARE * total:
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
            if not product.one or _is_only_caller(each.server, other.server)
        }
        kept.append([one for one in each.products if one[0].name not in theirs])
    for each, products in zip(known, kept, strict=True):
        each.forwarded = [product.name for product, _ in each.products if product not in [one for one, _ in products]]
        each.products = products


def _join_their_port(known: Sequence[_Known]) -> None:
    """Give a server with few requests the software of all others at its port, if it shows part of the evidence.

    Only for software whose servers form one service: a store's nodes listen on one port, and a cut head shows little.
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


def _is_only_caller(front: Server, behind: Server) -> bool:
    others = [caller for caller in behind.callers if caller != front.host]
    return front.port != behind.port and bool(front.sample) and not others


def _relays(front: Server, behind: Server) -> bool:
    """Whether both get the same requests, or this cannot be determined."""
    if not front.sample or not behind.sample:
        return not front.sample and not behind.sample
    return bool(set(front.sample) & set(behind.sample)) or _kinds_alike(front.sample, behind.sample)


def _service_infos(groups: Sequence[Sequence[_Known]], used_names: Iterable[str]) -> list[ServiceInfo]:
    of_product = Counter(each[0].product.name for each in groups if each[0].product)
    of_port = Counter(each[0].server.port for each in groups if not each[0].product and len(each) > 1)
    of_name = Counter(name for group in groups if (name := _asked_name(group)))
    of_owner = Counter(name for group in groups if (name := _owner_name(group)))
    found = []
    for group in groups:
        product, (first, *others) = group[0].product, sorted(each.server.key for each in group)
        place = host_and_port(*first) + (f"+{len(others)}" if others else "")
        name = place
        if product:
            name = product.name if of_product[product.name] == 1 else f"{product.name} {place}"
        elif owner := _owner_name(group):
            name = owner if of_owner[owner] == 1 and owner not in of_product else f"{owner} {place}"
        elif (asked := _asked_name(group)) and of_name[asked] == 1:
            name = asked
        elif others and of_port[first[1]] == 1:
            name = f"port {first[1]}"
        if name in used_names:  # the operator gave this name to something else
            name = f"{name} {place}" if name != place else f"server {place}"
        for each in group:
            words = _evidence(each, group)
            if name != host_and_port(*each.server.key) or words:
                found.append(ServiceInfo(*each.server.key, name, words))
    return found


def _owner_name(group: Sequence[_Known]) -> str:
    """The one name by which the processes of these servers of unknown software go; "" if there is none."""
    if any(each.product for each in group):
        return ""
    names = {owner_name(each.server.owners) for each in group if each.server.owners}
    return names.pop() if len(names) == 1 else ""


def _asked_name(group: Sequence[_Known]) -> str:
    """The one name by which clients of TLS ask for these servers of unknown software; "" if there is none."""
    names = set[str]().union(*(each.server.asked_names for each in group))
    known = any(each.product for each in group)
    return names.pop() if len(names) == 1 and not known and all("." in name for name in names) else ""


def _groups(known: Sequence[_Known], are_replicas: AreReplicas) -> list[list[_Known]]:
    """Servers by service."""
    whole = defaultdict[str, list[_Known]](list)
    by_port = defaultdict[tuple[int, str], list[list[_Known]]](list)
    for each in known:
        product = each.product
        if product and product.one:
            whole[product.name].append(each)
            continue
        of_port = by_port[each.server.port, product.name if product else ""]
        mine = next(
            (
                group
                for group in of_port[:MOST_GROUPS]
                if all(_may_be_replicas(one.server, each.server) for one in group)
                and any(are_replicas(host_and_port(*one.server.key), host_and_port(*each.server.key)) for one in group)
            ),
            None,
        )
        if mine is None:
            of_port.append([each])
        else:
            mine.append(each)
    asking = defaultdict[str, set[str]](set)
    for each in (each for nodes in whole.values() for each in nodes):
        asking[each.server.host].update(each.server.callers)
    stores = [store for nodes in whole.values() for store in _stores(nodes, asking)]
    return [*stores, *(group for of_port in by_port.values() for group in of_port)]


def _stores(nodes: Sequence[_Known], asking: Mapping[str, Iterable[str]]) -> list[list[_Known]]:
    """Nodes of one software, grouped by store: hosts of one store have a common caller, or call each other.

    Arguments: `asking`, the callers of any such software on each host: some of Swift's servers are rarely called.
    """
    stores: list[tuple[set[str], list[_Known]]] = []
    for node in nodes:
        around = {node.server.host, *asking[node.server.host]}
        joined = [store for store in stores if store[0] & around]
        stores = [store for store in stores if not store[0] & around]
        mine = [node for _, members in joined for node in members]
        stores.append((around.union(*(hosts for hosts, _ in joined)), [*mine, node]))
    return [members for _, members in stores]


def _may_be_replicas(one: Server, other: Server) -> bool:
    """Whether both have the same callers, and the same kinds of targets and names of processes as far as known."""
    if one.host == other.host:
        return False
    names = {owner_name(each.owners) for each in (one, other)} - {""}
    if len(names) > 1:
        return False
    callers = [{caller for caller in each.callers if caller not in (one.host, other.host)} for each in (one, other)]
    if len(callers[0] & callers[1]) < LEAST_COMMON_SHARE * len(callers[0] | callers[1]):
        return False
    return not (one.sample or other.sample) or _kinds_alike(one.sample, other.sample)


def _kinds_alike(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether two samples of requests are of the same kinds; false if they show none."""
    common = services.common_targets()
    both = [[_words(text) for text in sample if text.partition(" ")[2] not in common] for sample in (one, other)]
    if not all(both):
        return False
    for length in range(1, MOST_WORDS + 1):
        counts = [Counter(words[:length] for words in each) for each in both]
        kinds = counts[0].keys() | counts[1].keys()
        if len(kinds) > (len(both[0]) + len(both[1])) / 2:  # they do not repeat: data
            return length > 1 or len(counts[0].keys() & counts[1].keys()) >= LEAST_COMMON_SHARE * len(kinds)
        together = sum(min(counts[0][kind] / len(both[0]), counts[1][kind] / len(both[1])) for kind in kinds)
        if together < LEAST_COMMON_SHARE:
            return False
    return True


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.partition(" ")[2].strip("/").split("/")[:MOST_WORDS])


def _evidence(each: _Known, group: Sequence[_Known]) -> str:
    """The evidence for the name, in words."""
    said = []
    if each.products:
        said.append(" and ".join(_clue_words(services.clues()[name]) for name in each.products[0][1]))
    elif len(group) > 1:
        said.append(f"{len(group)} hosts do the same: requests go now to one, now to another, whatever they are for")
    elif each.forwarded:
        said.append(f"what shows {each.forwarded[0]} may be forwarded from the server that it calls")
    elif not each.protocols and not each.server.owners and (usual := services.usual_service(each.server.port)):
        said.append(f"no message shows which software it is; port {each.server.port} is usually {usual}")
    said += [owner_evidence(each.server.owners)] if each.server.owners else []
    said += [f"speaks {protocol}" for protocol in each.protocols]
    if names := sorted(each.server.asked_names):
        more = f" and {len(names) - MOST_ASKED_SHOWN} more" if len(names) > MOST_ASKED_SHOWN else ""
        said.append(f"clients of TLS ask for {', '.join(names[:MOST_ASKED_SHOWN])}{more}")
    return "; ".join(part for part in said if part)


def _clue_words(clue: Clue) -> str:
    if clue.protocol:
        return f"is sent requests of {clue.protocol}"
    if clue.begins:
        return "sends its protocol's first bytes" if not clue.from_client else "is sent its protocol's first bytes"
    said = [f"is asked for {clue.targets[0]}"] if clue.targets else []
    if clue.header:
        name, value = clue.header
        header = f"{name}: {value}…" if value else f"a header {name}"
        said.append(f"{'is sent' if clue.from_client else 'answers with'} {header}")
    return " with ".join(said[:1]) + (f", {said[1]}" if said[1:] else "") or f"is sent {', '.join(clue.methods)}"
