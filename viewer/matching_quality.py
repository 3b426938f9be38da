"""Matching quality on the page: a line at the top, and the dialog that it opens."""

from collections.abc import Sequence

from dash import html
from dash.development.base_component import Component

from collector.queries import (
    PAIRING_NAMES,
    ConnectionQuality,
    CounterInfo,
    HostPair,
    Pairing,
    connection_name,
    pair_name,
    trouble_words,
)
from viewer.controls import action_button, connection_button

MEANINGS = {
    "hops": "Transfers of bytes, and segments without bytes",
    "matched": "Share of the hops that could be seen at both ends (all but lost and outside) that are paired",
    "split": "Matched, but with other boundaries at the receiver (segmentation offload)",
    "sent again": "Retransmissions",
    "lost": "Sent, but this copy did not arrive",
    "dropped": "Went by, but one of the two captures missed it",
    "outside": "The other host was not captured at that time, or not at all",
    "ambiguous": "More than one possible partner, and nothing distinguishes them",
    "unmatched": "Seen at one end, for none of these reasons; often a copy that the network made",
    "early": "Received before it was sent: the clocks are wrong there",
}
"""Of each column, in the order of the table."""


def quality_line(pairing: Pairing) -> Component:
    """What part of the bytes is paired; opens the dialog."""
    good = pairing.total.matched_bytes == pairing.total.bytes and not pairing.total.early_count
    return action_button(pairing.words, "pairing", "How well packets were paired (p)", "link" if good else "link bad")


def quality_parts(pairing: Pairing, warnings: Sequence[CounterInfo]) -> list[Component]:
    """Sums, what was lost on the way here, the pairs of hosts, the worst connections."""
    return [
        html.Header([html.H2("Pairing"), action_button("close", "close", "Close (Esc)", "small")]),
        html.P(f"{pairing.words}; {pairing.hops_words}."),
        *(warning_line(each) for each in warnings),
        *(html.P(note) for note in pairing.notes),
        html.H3("By pair of hosts"),
        pairs_table(pairing.host_pairs),
        meanings_table(),
        *_worst(pairing),
    ]


def warning_line(counter: CounterInfo) -> Component:
    """A counter of lost data, and what to do about it."""
    what = html.B(f"{counter.count:,} {counter.name.replace('_', ' ')}")
    return html.P([what, f" on {counter.host or 'the trace'}: {counter.remedy}"], className="warning")


def pairs_table(pairs: Sequence[HostPair]) -> Component:
    """Columns in which all are 0 are left out."""
    shown = [name for name in PAIRING_NAMES if any(getattr(pair.counts, name) for pair in pairs)]
    names = ["hops", "matched", *(PAIRING_NAMES[name] for name in shown)]
    head = html.Tr([html.Td(), *(html.Th(name, title=MEANINGS[name], scope="col") for name in names)])
    rows = [
        html.Tr(
            [
                html.Th(pair_name(pair), scope="row"),
                html.Td(f"{pair.counts.hops_count:,}"),
                html.Td(pair.counts.matched_share),
                *(html.Td(f"{count:,}" if (count := getattr(pair.counts, name)) else "") for name in shown),
            ]
        )
        for pair in pairs
    ]
    return html.Table([html.Thead(head), html.Tbody(rows)], className="figures")


def meanings_table() -> Component:
    """The titles of the columns again, for who has no pointer."""
    rows = [html.Tr([html.Th(name, scope="row"), html.Td(meaning)]) for name, meaning in MEANINGS.items()]
    return html.Details([html.Summary("What these counts mean"), html.Table(html.Tbody(rows), className="meanings")])


def connection_words(connection: ConnectionQuality) -> list[str | Component]:
    """A connection and what is wrong with it."""
    return [connection_name(connection), html.Small(trouble_words(connection.counts))]


def _worst(pairing: Pairing) -> list[Component]:
    connections = pairing.worst_connections
    if not connections:
        return [html.P("No connection lost a packet or left one unpaired.", className="hint")]
    count = f"the worst {len(connections):,} of {pairing.imperfect_connections_count:,}"
    note = count if pairing.imperfect_connections_count > len(connections) else "worst first"
    rows = [html.Li(_connection(connection)) for connection in connections]
    return [html.H3(["Connections with losses or unpaired packets ", html.Small(note)]), html.Ul(rows)]


def _connection(connection: ConnectionQuality) -> Component:
    return connection_button(connection_words(connection), connection.connection_id)
