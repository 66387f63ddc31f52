"""Writes integers of thousands of digits and more. Imported when there is one, because `decimal` is large."""

from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, Inexact, localcontext

_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[Inexact])


def decimal_text(value: int, bits_at_once: int) -> str:
    """
    The digits of an integer of 0 or more.

    It is put together from halves, as `decimal` multiplies large numbers far faster than Python divides them: a payload
    of a million digits held the interpreter for ten seconds.

    Args:
        bits_at_once: Integers of up to so many bits are converted in one go.
    """
    powers: dict[int, Decimal] = {}

    def convert(part: int, bits: int) -> Decimal:
        if bits <= bits_at_once:
            return Decimal(part)
        half = bits // 2
        high = part >> half
        if half not in powers:
            powers[half] = Decimal(2) ** half
        return convert(high, bits - half) * powers[half] + convert(part - (high << half), half)

    with localcontext(_EXACT):
        return f"{convert(value, value.bit_length()):f}"
