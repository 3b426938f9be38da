"""What document 000 says of its figures 3 to 14, in words: its curves are printed without numbers."""

_HDD = "rises up to 32 at once, falls beyond; retries above 128; failures above 256, where it falls much"
_SSD = (
    "far above the HDD's; rises up to 32, steady up to 128, falls much beyond; retries above 128; failures above 1,024"
)
_SSD_1KB = "far above the HDD's; rises up to 32, falls much beyond; retries above 128; failures above 1,024"
_USE_HDD = (
    "storage I/O 90 % or more at any concurrency; CPU of storage and proxy rise with it and stay below that; client's "
    "CPU, client's and proxy's I/O at most 10 %"
)
_USE_SSD = (
    "storage I/O the highest curve up to {}, below the HDD's, and falling at high concurrency; proxy's CPU high there, "
    "above it at the highest"
)
SAID = {
    3: _HDD,
    4: _HDD,
    5: _HDD,
    6: _SSD,
    7: _SSD_1KB,
    8: _SSD,
    9: _USE_HDD,
    10: _USE_HDD,
    11: _USE_HDD,
    12: _USE_SSD.format(128),
    13: _USE_SSD.format(32),
    14: _USE_SSD.format(32),
}
"""Figure to its sentence (§5)."""
