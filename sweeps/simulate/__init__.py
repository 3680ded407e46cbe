"""A queue of requests served event by event, beside the closed forms."""
