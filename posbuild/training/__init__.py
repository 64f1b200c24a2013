"""Training: the Lightning module and data module, callbacks, and one whole job from settings to record."""
