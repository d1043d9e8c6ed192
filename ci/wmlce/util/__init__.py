"""What every part uses: errors, files, locks, paths, progress, client programs."""
