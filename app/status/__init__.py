"""Read models of a run: status, league, traces and FeedbackState."""
