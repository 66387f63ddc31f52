"""
Batches: groups of jobs in both languages, with callbacks when they finish. See `docs/batches.md`.

Programs use `batch` and `adding`; `extension` has the hooks; `state` reads and `steps` writes. Everything that changes
a batch is in Lua (`lua/batch.lua`), which Ruby's support file contains as well. `audit` finds lost members.
"""
