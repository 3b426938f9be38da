"""HTTP/1.1 on a connection, as its server and as its client, and what messages of the Swift API say, as values."""
