"""The object server: objects' files on devices, and what it reports of changes."""
