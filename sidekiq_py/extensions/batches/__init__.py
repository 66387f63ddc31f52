"""
Batches: jobs of either language that belong together, and callbacks when they are through. See `docs/batches.md`.

`batch` and `adding` are what programs use; `extension` has the hooks; `state` reads, `steps` writes: all that changes a
batch is Lua (`lua/batch.lua`), which Ruby's support file brings along as well. `audit` finds members that were lost.
"""
