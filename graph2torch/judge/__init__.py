"""Decides how equal the rebuilt policy is: by the graphs, by running both, by sampling; and finds where two graphs part."""
