"""Tests with gems that Debian does not package: `make gems` fetches their public source, and runs these."""
