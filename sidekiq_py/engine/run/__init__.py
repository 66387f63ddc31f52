"""One attempt at a job: processor, limits, retry. May import `fetch`, `ownership` and `report`."""
