"""What came of a run: a row for each request, figures drawn from the rows, reports, comparisons."""
