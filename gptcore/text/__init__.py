"""Raw text to words to ids."""
