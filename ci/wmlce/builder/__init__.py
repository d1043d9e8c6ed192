"""From recipes to finished packages in the cache."""
