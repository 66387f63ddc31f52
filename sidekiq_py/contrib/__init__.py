"""
Adapters to other frameworks, each imported only by programs that use the framework.

May import `transactions` and below.
"""
