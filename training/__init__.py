"""How the shipped models, tokenizer and token counts were made: see README.md."""
