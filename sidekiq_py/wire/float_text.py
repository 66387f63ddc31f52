"""
Floats as Ruby's json gem writes them. There are two rules, depending on the gem's release.

Both write digits that read back as the same double. `Float#to_s` writes the shortest such digits. json 3 writes those
of the Grisu2 algorithm (Florian Loitsch, "Printing Floating-Point Numbers Quickly and Accurately with Integers", 2010),
which are longer or end differently for about one double in 1,250.
"""

from functools import cache
from struct import pack, unpack

_MASK_64 = (1 << 64) - 1
_HIDDEN_BIT = 1 << 52

# Grisu2 multiplies by a cached power of ten, so that the product's binary exponent is between this and -32.
_LEAST_BINARY_EXPONENT = -60
_FIRST_DECIMAL_POWER = -348
_DECIMAL_POWER_STEP = 8


def ruby_to_s(value: float) -> str:
    """
    The text of `Float#to_s`: json before 2.11, and every sorted-set score.

    Args:
        value: A finite number.

    Source: Ruby 3.1.2, `Float#to_s`; json 2.3.0 to 2.9.1.
    """
    if 1e-4 <= value < 1e15:  # here `repr` matches Ruby, and nearly all floats of a payload are in this range
        return repr(value)
    if value == 0.0:
        return repr(value)
    sign, digits, point = _shortest_digits(value)
    if point > 0 and (point < len(digits) or point <= 15):
        return sign + _plain(digits, point)
    if -4 < point <= 0:
        return sign + _plain(digits, point)
    exponent = point - 1
    return f"{sign}{digits[0]}.{digits[1:] or '0'}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"


def json3_text(value: float) -> str:
    """
    The text of json 3.x: fpconv's rule, with Grisu2's digits.

    Args:
        value: A finite number.

    Source: json 3.1.0, `fpconv.c`.
    """
    if -1e15 < value < 1e15 and value.is_integer():  # exact in a double, so every algorithm finds the same digits
        return repr(value)
    digits, power = _grisu2(abs(value))
    sign = "-" if value < 0 else ""
    exponent = abs(power + len(digits) - 1)
    if (power >= 0 and exponent < 15) or (power < 0 and (power > -7 or exponent < 10)):
        return sign + _plain(digits, len(digits) + power)
    mantissa = digits[0] + ("." + digits[1:] if len(digits) > 1 else "")
    return f"{sign}{mantissa}e{'-' if power + len(digits) - 1 < 0 else '+'}{exponent}"


def _plain(digits: str, point: int) -> str:
    """Decimal notation of 0.<digits> * 10^point, with `.0` after a whole number."""
    if point <= 0:
        return "0." + "0" * -point + digits
    if point >= len(digits):
        return digits + "0" * (point - len(digits)) + ".0"
    return digits[:point] + "." + digits[point:]


def _shortest_digits(value: float) -> tuple[str, str, int]:
    """Sign, digits and point of the shortest text that reads back as *value*: 0.<digits> * 10^point."""
    mantissa, _, exponent = repr(value).partition("e")
    sign = "-" if mantissa[0] == "-" else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or "0") - (len(whole + fraction) - len(digits))
    return sign, digits.rstrip("0"), point


def _grisu2(value: float) -> tuple[str, int]:
    """Digits and power of ten: *value* (positive) reads back from <digits> * 10^power."""
    fraction, exponent = _binary_parts(value)
    upper, upper_exponent = _normalised(2 * fraction + 1, exponent - 1)
    shift = 2 if fraction == _HIDDEN_BIT else 1  # below a power of two, the neighbour is closer
    lower = ((fraction << shift) - 1) << (exponent - shift - upper_exponent)
    middle, _ = _normalised(fraction, exponent)

    power, cached, cached_exponent = _cached_power(upper_exponent)
    scaled_middle = _multiply(middle, cached)
    scaled_upper = _multiply(upper, cached) - 1
    scaled_lower = _multiply(lower, cached) + 1
    return _generate(scaled_middle, scaled_upper, scaled_lower, upper_exponent + cached_exponent + 64, -power)


def _binary_parts(value: float) -> tuple[int, int]:
    """*value* as fraction * 2^exponent, both whole."""
    bits: int = unpack("<Q", pack("<d", value))[0]
    fraction, exponent = bits & (_HIDDEN_BIT - 1), bits >> 52
    if exponent:
        return fraction | _HIDDEN_BIT, exponent - 1075
    return fraction, -1074


def _normalised(fraction: int, exponent: int) -> tuple[int, int]:
    """The same number with bit 63 of the fraction set."""
    shift = 64 - fraction.bit_length()
    return fraction << shift, exponent - shift


def _multiply(left: int, right: int) -> int:
    """The upper 64 bits of a product of two 64-bit fractions, rounded."""
    return (left * right + (1 << 63)) >> 64


def _cached_power(exponent: int) -> tuple[int, int, int]:
    """
    The power of ten out of 10^-348, 10^-340, … that brings a fraction with this *exponent* into range, as power,
    fraction and exponent.
    """
    estimate = int(-(exponent + 87) * 0.30102999566398114)
    index = int((estimate - _FIRST_DECIMAL_POWER) / _DECIMAL_POWER_STEP)
    while True:
        power = _FIRST_DECIMAL_POWER + index * _DECIMAL_POWER_STEP
        fraction, power_exponent = _power_of_ten(power)
        reached = exponent + power_exponent + 64
        # The estimate is never too high: true of all exponents that a double can have.
        if reached >= _LEAST_BINARY_EXPONENT:
            return power, fraction, power_exponent
        index += 1


@cache
def _power_of_ten(power: int) -> tuple[int, int]:
    """10^power as a 64-bit fraction, rounded to nearest, and its binary exponent."""
    if power >= 0:
        exact = 10**power
        shift = exact.bit_length() - 64
        return (exact << -shift if shift <= 0 else (exact + (1 << (shift - 1))) >> shift), shift
    divisor = 10**-power
    shift = divisor.bit_length() + 63
    fraction = ((1 << (shift + 1)) // divisor + 1) >> 1
    return fraction, -shift


def _generate(middle: int, upper: int, lower: int, exponent: int, power: int) -> tuple[str, int]:
    """
    Generate digits of *upper* until the rest lies between *lower* and *upper*, then round the last digit towards
    *middle*.
    """
    distance, delta = upper - middle, upper - lower
    one = 1 << -exponent
    whole, rest = upper >> -exponent, upper & (one - 1)
    digits: list[int] = []

    for kappa in range(9, -1, -1):
        digit, whole = divmod(whole, 10**kappa)
        if digit or digits:
            digits.append(digit)
        remainder = (whole << -exponent) + rest
        if remainder <= delta:
            return _rounded(digits, delta, remainder, 10**kappa << -exponent, distance), power + kappa

    kappa, unit = 0, 1
    while True:
        # 64-bit words overflow in json's C code, so they do here, too.
        rest, delta, unit = rest * 10 & _MASK_64, delta * 10 & _MASK_64, unit * 10
        kappa -= 1
        digit, rest = rest >> -exponent, rest & (one - 1)
        if digit or digits:
            digits.append(digit)
        if rest < delta:
            return _rounded(digits, delta, rest, one, distance * unit & _MASK_64), power + kappa


def _rounded(digits: list[int], delta: int, remainder: int, step: int, distance: int) -> str:
    """The digits. The last one is lowered as long as that brings the number closer to the middle."""
    while delta - remainder >= step and 2 * (distance - remainder) > step:
        digits[-1] -= 1
        remainder += step
    return "".join(map(str, digits))
