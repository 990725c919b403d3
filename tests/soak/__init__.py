"""`scripts/soak`: that its books find what does not add up, and that it runs."""
