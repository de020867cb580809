"""What a run leaves on disk or at a URI."""
