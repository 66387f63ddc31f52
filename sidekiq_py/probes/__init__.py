"""
HTTP probes of a worker (`--probe-port`): `/live`, `/ready`, `/metrics`.

`server` answers requests, `worker` checks one process, and `prefork` asks the children of `--processes` from a process
beside them. May import the engine and `metrics`. Public, for workers with their own command line.
"""
