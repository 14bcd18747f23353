"""What Meander is compared with: a restart, and a node that cannot migrate.

Built on what any user can call; none of it runs in production.
"""
