"""nearkv: an analytical cost model of long-context LLM inference on heterogeneous memory."""

__version__ = "0.1.0"
