"""Compiled inner loops: free functions on primitive arrays.

Nothing here checks its input; the callers have.
"""
