"""What keeps a home and its stores small and sound: `gptmill gc`, `gptmill verify`, and both by schedule."""
