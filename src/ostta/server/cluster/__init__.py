"""Sessions on more than one machine: one writer each, by leases in a shared folder, and replicas on Ray Serve that hold them."""
