"""Hearts by our own rules, in compiled batches; what OpenSpiel shows of it, in the same terms; and bots."""
