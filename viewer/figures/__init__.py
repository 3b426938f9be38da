"""Figures of the viewer: rows in, a Plotly figure out; nothing is read or kept. Colours of text and grid are the page's
(`assets/styles/`), so that a change of theme needs no new figure."""
