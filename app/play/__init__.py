"""Playing of games: rollouts, self-play, matches, gauntlets and shard inspection."""
