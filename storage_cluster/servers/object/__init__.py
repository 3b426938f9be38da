"""The object server: it answers requests for objects, and reports changes to containers and to replicators."""
