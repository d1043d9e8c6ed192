"""What several programs of the validation use: files of results, facts of the machine, models, starting
programs."""
