"""report.html: a built policy, or the difference of two files, as one page to look at."""
