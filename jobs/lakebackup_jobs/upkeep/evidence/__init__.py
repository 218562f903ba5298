"""Evidence of what a drill or a verify did: what it observed, and the page for people."""
