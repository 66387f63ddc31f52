"""What goes along with frameworks and tests."""
