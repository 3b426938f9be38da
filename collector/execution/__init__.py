"""How work is spread over cores, memory and disk: it computes nothing of a trace."""
