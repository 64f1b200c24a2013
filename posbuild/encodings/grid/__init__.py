"""The maths of the schemes for positions of several axes: positions are (B or 1, T, axes). Suffix A: axes."""
