"""The model server of `gptmill serve`: one model behind HTTP on loopback."""
