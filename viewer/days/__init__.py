"""The page of a series, which moves through days, and the way from there into the traces of its periods."""
