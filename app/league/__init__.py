"""The league of models: members, ratings, matchmaking, retention. Pure."""
