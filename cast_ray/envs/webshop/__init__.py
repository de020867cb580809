"""WebShop: a shop in text, where an instruction says what to buy.

The tasks, the pages and the reward are those of the published benchmark; the code is our own, and
so is the search. ``docs/webshop.md`` says what equals the original and what does not.
"""
