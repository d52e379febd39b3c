"""Images: build them (lock, inspect, sign and pull come beside)."""
