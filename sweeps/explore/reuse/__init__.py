"""KV caches that outlive a request: a server, a question, what tiers do for it, and their sizes."""
