"""Every configuration key, its default, its checks and the named presets."""
