"""The book of reservations: what was promised to whom, of which device, from when to when."""
