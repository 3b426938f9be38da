"""What S3's clients and servers have in common: signatures of requests, and the framing of signed uploads."""
