"""What Meander is compared with: a restart, and a node that cannot migrate."""
