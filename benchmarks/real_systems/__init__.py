"""Third-party systems: compares what the product reports of them with independent truth."""
