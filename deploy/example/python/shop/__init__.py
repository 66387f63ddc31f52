"""The program of deploy/compose.yaml."""
