"""`--processes N`: the parent, its children, and the pipes between them. May import `launcher` and below."""
