"""The league of models: members, ratings, matchmaking, retention. Its functions are pure: they have no side effects."""
