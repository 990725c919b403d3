"""The command line: thin, over the same public names a program uses."""
