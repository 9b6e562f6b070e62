"""What a person sees who opens the web pages, asserted in a real headless Chromium."""
