"""The self test of a built policy."""
