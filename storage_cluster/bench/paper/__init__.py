"""The experiments of two papers, done again on the bundled cluster, and what they say held against what is found."""
