"""What runs the project elsewhere, and what an operator runs beside it."""
