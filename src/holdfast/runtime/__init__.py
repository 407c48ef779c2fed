"""What every shape of work needs between the caller and the store: arguments as JSON, errors as text."""
