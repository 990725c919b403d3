"""The laws for any input: any bytes in any pieces, any frames in any dialect, any session file.

The laws are here once. The tests try them on what hypothesis thinks of, `scripts/fuzz` on what atheris does
and on blind changes in bulk (`mutations.py`).
"""
