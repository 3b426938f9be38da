"""What capture files hold: the only reader of them, and the columns that it gives."""
