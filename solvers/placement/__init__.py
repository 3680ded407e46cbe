"""Where FlexGen puts weights, KV cache and activations, and in which blocks it works."""
