"""The equations of CAST and of the algorithms that it is compared with."""
