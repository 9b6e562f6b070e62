"""Raw text to words to ids."""

# Every kind of tokenizer is known once this room has been entered: Tokenizer.load finds the right one.
from gptcore.text import bpe as bpe
from gptcore.text import byte_bpe as byte_bpe
from gptcore.text import library as library
from gptcore.text import sentence_piece as sentence_piece
from gptcore.text import wordpiece as wordpiece
