"""Questions about speed, each a script: side by side in one run, ratios first. `make bench` asks them all."""
