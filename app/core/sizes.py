"""Sizes of files and disks as text."""

UNITS = ("B", "kB", "MB", "GB", "TB")


def size_text(size_bytes: float) -> str:
    """Return a size in the largest decimal unit that it fills.

    >>> size_text(0), size_text(14_200_000), size_text(999_960), size_text(-1500)
    ('0 B', '14 MB', '1.0 MB', '-1.5 kB')
    """
    value, unit = float(size_bytes), UNITS[0]
    for larger in UNITS[1:]:
        if abs(value) < 999.5:
            break
        value, unit = value / 1000, larger
    return f"{value:,.0f} {unit}" if unit == UNITS[0] or abs(value) >= 9.95 else f"{value:.1f} {unit}"
