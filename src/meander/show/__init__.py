"""What people look at: pictures in a terminal, plots, reports."""
