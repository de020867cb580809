"""WebShop: a shop in texts, where an instruction names what is to be bought.

The tasks, the pages and the reward are those of the published benchmark; the code is our own, and
so is the search. ``docs/webshop.md`` says what equals the original and what does not.
"""
