"""What runs the project elsewhere, and measures it here."""
