"""What a file is."""
