"""What `ssp doctor` looks at, a file for each part of a machine; nothing here starts, ends or changes anything."""
