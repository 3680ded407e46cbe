"""The range of an answer: hardware numbers drawn from their laws, and the error of the models."""
