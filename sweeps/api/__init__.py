"""The Python interface: the questions of the command line, with pandas tables as answers."""
