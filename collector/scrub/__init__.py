"""A copy of a trace that can be given away: names, addresses, paths and ids replaced, times and shapes kept."""
