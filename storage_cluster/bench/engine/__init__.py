"""Requests on the wire: a client fast enough never to be the bottleneck, with true times."""
