"""A fuzzer of the command line: hostile arguments and files, and options that must be read."""
