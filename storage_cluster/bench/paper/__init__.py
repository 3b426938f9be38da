"""Repeats the experiments of two papers on the bundled cluster, and compares their statements with the results."""
