"""The league of models: ratings, matchmaking, retention. Pure."""
