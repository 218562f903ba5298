"""The catalog: one class reads it, one writes it; leases, manifests, destinations and their roots."""
