"""The catalog's reader and writer, and leases, manifests, destinations and their roots."""
