"""How likely is your language model's unlikeliest output?"""
