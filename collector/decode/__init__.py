"""Capture files as packets by partition, with the hosts that they are of."""
