"""Llama's kind of decoder (Touvron et al. 2023), pre-trained here or read: Llama, Mistral, Qwen2, Qwen3."""
