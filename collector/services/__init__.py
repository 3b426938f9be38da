"""What servers are called, which of them are replicas, and which requests are the clients' own."""
