"""RoBERTa: folders of it are read, fine-tuned and written (Liu et al. 2019)."""
