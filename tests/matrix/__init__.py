"""The fault matrix: every dialect, at every place of an answer, met by every fault and every way to stop.

    cells.py     the cells, and the rules that leave some out
    answers.py   one answer in eight dialects, cut at a place; what had been said by then
    http_peer.py, ws_peer.py    servers that bring a cell's fault about, on real loopback sockets
    oracle.py    what must come of a cell: written from the specification, not from the code
    running.py   one cell, from an open socket to its verdict
    sdks.py      the same bytes through the official SDKs, by a weaker criterion

`test_cells.py` runs a sample in the suite; `scripts/faults` runs all of them.
"""
