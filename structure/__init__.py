"""
Measures the structure of the packages: `make structure` prints a table, and with `--verbose` also what it counted.

Each module answers one question: `imports` (the import graph and its cycles), `layers` (imports that point up),
`places` (the number of entries in a folder), `classes` (attributes and methods), `lines` (lines of code).
"""
