"""The master: epochs, migrations, losses, leases, the pause budget, what is durable."""
