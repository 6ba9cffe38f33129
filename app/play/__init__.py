"""Playing: rollouts of many games at once, self-play, matches, gauntlets, inspection of shards."""
