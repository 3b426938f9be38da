"""The hops of a trace as an index on disk, so that any window of time is answered in milliseconds, however many hops.

An arrow is a hop as the viewer draws it: from its send to its receive. Its `anchor` is the send, or the receive where
the send was not seen; every hop has one, so that counting by anchor counts every hop once, at every zoom.

`columns` defines the columns of the index, `build` computes them from the tables, `shelf` keeps them in files that are
mapped into memory, so that opening costs nothing and only the data needed is read. `windows` answers queries, with the
help of `levels`:

- Arrows in a window: rows are sorted by anchor, and for each block of rows the latest end so far is kept. Those that
  overlap [a, b] then lie in one slice, found by two binary searches. A few very long arrows would make this slice
  large, so they are kept separately.
- Density: with more arrows than pixels, lines hide each other, so arrows are counted. Bins are powers of two
  wide and begin at multiples of their width; hence coarse bins are sums of fine ones, neighbouring zooms agree, and a
  view reads one slice of the level that suits it. Below the finest level the rows themselves are counted.
- A sample: of more arrows than can be drawn, every 2^k-th row, and of those in trouble more; all with exact ends.

Times are int64 ns relative to the trace's start, exact as a float64 while the trace is shorter than 104 days.
"""
