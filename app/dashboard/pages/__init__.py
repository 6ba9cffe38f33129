"""The pages, each with the routes that serve it and its parts."""
