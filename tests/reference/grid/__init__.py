"""The slow formulas of the schemes for positions of several axes."""
