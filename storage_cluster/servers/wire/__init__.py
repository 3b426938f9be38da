"""HTTP/1.1 on a connection, as its server and as its client."""
