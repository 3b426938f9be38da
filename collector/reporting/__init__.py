"""Reports: summarise a trace in one sentence and on one screen, as text and as HTML."""
