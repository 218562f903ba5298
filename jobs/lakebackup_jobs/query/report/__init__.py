"""What a catalog protects and what somebody has to mend: as values, and as one page that shows them."""
