"""Support for frameworks and tests."""
