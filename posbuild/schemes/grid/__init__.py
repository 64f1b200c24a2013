"""Declarations of the schemes for positions of several axes, such as the rows and columns of an image."""
