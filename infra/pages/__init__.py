"""The two web pages as a person uses them, in a real browser."""
