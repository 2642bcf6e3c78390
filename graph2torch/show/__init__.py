"""What the command line prints, a file for each command."""
