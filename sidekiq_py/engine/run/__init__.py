"""Running jobs: processor, time limits, retry. May import `fetch`, `ownership` and `report`."""
