"""The account and the container server, and their SQLite databases."""
