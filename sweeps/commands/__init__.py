"""The command line's parts: commands, shared options and rendering."""
