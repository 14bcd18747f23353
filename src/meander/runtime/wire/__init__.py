"""Between processes: messages as bytes, connections, and who is let in.

What a message means is not known here; it is decoded, validated, and put into an inbox.
"""
