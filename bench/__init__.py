"""Benchmarks: each script answers one question about speed, side by side in one run, with ratios first. `make bench`
runs them all."""
