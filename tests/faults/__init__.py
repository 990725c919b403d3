"""Faults that users of such software reported in public, one test or more a row, through the public door.

Each test is named after its row of the list the project keeps (A1, B6, ...). All of them go the whole way:
`aiio.IO` -> Chat Completions dialect -> HTTP on real loopback sockets -> a server in the same trio run.
"""
