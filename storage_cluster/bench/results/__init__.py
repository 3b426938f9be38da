"""The results of a run: a row for each attempt, figures computed from the rows, reports, comparisons."""
