"""Names services, detects replicas, and selects the clients' own requests."""
