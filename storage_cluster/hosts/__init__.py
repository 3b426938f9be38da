"""The cluster's hosts: network namespaces on one switch, over links that behave like network cards."""
