"""Mutated files of every kind that longshot reads: `make fuzz MINUTES=5`."""
