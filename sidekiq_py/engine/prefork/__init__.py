"""`--processes N`: the parent, its child processes, and the pipes between them. May import `launcher` and below."""
