"""Model folders, one module a layout: ours, Hugging Face's (GPT-1, GPT-2) and the original release's.

A folder is read to a configuration and tensors by our names, and written from them: nothing here builds a network.
"""
