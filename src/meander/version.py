"""The version of this package, in a module that imports nothing: everybody may ask for it."""

__version__ = "0.1.0"
