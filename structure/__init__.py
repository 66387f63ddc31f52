"""
What the packages are made of, measured: `make structure` prints a table, and with `--verbose` what it counted.

Each module answers one question: `imports` (who imports whom, and in a circle), `layers` (imports that point up),
`places` (what lies side by side in a folder), `classes` (attributes and methods), `lines` (lines of code).
"""
