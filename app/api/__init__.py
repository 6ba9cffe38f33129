"""What commands and the public API do; ``app.cli`` adds options and printing, ``flyball`` exports the names."""
