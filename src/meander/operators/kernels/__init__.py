"""Compiled inner loops over raw memory: free functions on addresses and primitive arrays.

Rules
  1. Nothing here checks its arguments; the callers have. The one exception is what only a pass
     over the rows can see (offsets that run backwards, a sum that overflows): a kernel reports
     the row and its caller raises.
  2. No kernel reads or writes a byte outside the rows it was given: Arrow promises no padding.
  3. Every kernel releases the interpreter (`nogil`), and the caller keeps the buffers alive.
"""
