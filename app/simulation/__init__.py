"""The loop closed around a modelled cluster on a virtual clock."""
