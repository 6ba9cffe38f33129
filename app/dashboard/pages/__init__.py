"""The pages, each with what serves it and its parts."""
