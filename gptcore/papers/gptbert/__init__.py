"""GPT-BERT: one network learns next tokens and hidden words (Charpentier and Samuel 2024)."""
