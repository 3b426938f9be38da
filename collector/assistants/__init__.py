"""A trace for assistants, programs that answer questions in words: what they may ask, and the protocol for it."""
