"""KV caches that outlive a request: hits over capacity, loading against recomputing, wear."""
