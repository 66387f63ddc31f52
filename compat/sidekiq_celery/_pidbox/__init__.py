"""A node of remote control: it listens on kombu's pidbox, carries out commands and replies."""
