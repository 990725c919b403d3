"""Any order of tasks, any checkpoint: a write keeps its laws whoever is first and wherever it is stopped."""
