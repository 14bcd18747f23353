"""Compiled inner loops: free functions on primitive arrays, each called from one thin public function.

Nothing here checks its input; the callers have.
"""
