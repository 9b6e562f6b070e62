"""What a person sees who opens the web pages, asserted in a real headless Chromium."""

CHROMIUM = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]
"""How it is started."""
