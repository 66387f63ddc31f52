"""Code that runs in a worker's processes. The pools themselves belong to the engine."""
