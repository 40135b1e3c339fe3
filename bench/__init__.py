"""Figures of the log store, each beside something known, run interleaved in one go: `python -m bench [name …]`."""
