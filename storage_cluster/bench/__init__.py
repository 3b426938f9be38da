"""Load on an object store, and how well it bore it."""
