"""Boards of other people: the forms that collections, lists and tables have."""
