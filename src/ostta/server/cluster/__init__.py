"""Sessions on more than one machine: replicas on Ray Serve, and the engine that routes requests to them."""
