"""Support for Django."""
