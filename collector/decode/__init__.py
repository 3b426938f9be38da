"""Decodes capture files to packets, divided into partitions, and identifies the captured hosts."""
