"""What a trace says, in one sentence and on one screen, as text and as HTML."""
