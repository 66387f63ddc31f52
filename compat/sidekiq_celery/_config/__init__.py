"""An app's settings, and what is derived from them: broker, queues, routes."""
