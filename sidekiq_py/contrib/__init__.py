"""
Adapters for other frameworks. Programs import only the modules for the frameworks that they use.

May import `transactions` and below.
"""
