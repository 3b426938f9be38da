"""How often links between requests are right, measured on live captures against the servers' own logs."""
