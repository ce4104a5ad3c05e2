"""What `ssp doctor` looks at, a file for each part of a machine, and what a dry run says. Nothing here starts anything."""
