"""What people look at: tables, topology diagrams, predictions, flight records."""
