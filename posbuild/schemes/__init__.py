"""Declarations of the schemes, without torch: one file a scheme or family, holding SCHEME or SCHEMES."""
