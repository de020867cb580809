"""Damaged and made-up files, given to every reader of outside bytes."""
