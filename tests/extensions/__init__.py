"""What a user of docs/functions.md would write, in files of their own; ``test_extensions`` trains
with them."""
