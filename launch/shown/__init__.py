"""What commands show, beside what they do."""
