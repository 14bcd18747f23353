"""Plans that look ahead: the matrix of migrations, projected costs, forecasts, and their evaluation."""
