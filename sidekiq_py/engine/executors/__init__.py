"""Where jobs run that do not run in a processor's own thread: the event loop, and child processes."""
