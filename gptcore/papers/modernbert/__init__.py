"""ModernBERT: folders of it are read, fine-tuned and written (Warner et al. 2024)."""
