"""How often requests are put together rightly, measured on live captures against the servers' own logs."""
