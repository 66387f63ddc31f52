"""Programs that campaigns start and kill."""
