"""A whole deployment on a virtual clock: the processes of production, and all around them simulated."""
