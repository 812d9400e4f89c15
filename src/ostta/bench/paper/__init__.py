"""What the paper printed, as data: one CSV file a table or figure, read by `values`."""
