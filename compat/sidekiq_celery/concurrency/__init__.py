"""What runs in the processes of a worker; the pools themselves are the engine's."""
