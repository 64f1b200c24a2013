"""The maths of the schemes: one file a scheme or family, named as its declaration in posbuild/schemes/."""
