"""What only a GPU can show, in the order in which it proves most; ``python -m tests.gpu`` says how.

Every check also runs on CPU tensors, small (``make gpu-test``), so that it is known to work before
a GPU is there.
"""
