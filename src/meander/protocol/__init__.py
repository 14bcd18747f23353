"""HOW to move: sans-IO machines. Pure: no clock, socket, thread or random source below."""
