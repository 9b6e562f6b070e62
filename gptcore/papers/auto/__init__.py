"""Networks of others as they are: whatever transformers' AutoModel reads, wrapped (the extra ``gptmill[hf]``)."""
