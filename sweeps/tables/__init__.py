"""Tables as people and files show them."""
