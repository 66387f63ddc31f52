"""
Renders the part of ERB that a `sidekiq.yml` uses: values from the environment.

    <%= ENV["X"] %>   <%= ENV["X"] || 5 %>   <%= ENV.fetch("X", 5) %>   <%= ENV.fetch("X") { 5 } %>

Each form may be followed by `.to_i` or `.to_s`, also inside parentheses as in `(ENV["X"] || 5).to_i`, or be within
`Integer(…)`. Anything else is rejected, because no Ruby is run here. Comments `<%# … %>`, the trims `<%-` and `-%>`,
and `<%%` for a literal `<%` work as in Ruby. Source: Sidekiq 8.1.7, cli.rb, `parse_config` (trim mode `-`).
"""

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from sidekiq_py.errors import ConfigError
from sidekiq_py.wire.json_writer import to_s

Value = str | int | float | bool | None

SUPPORTED = (
    'ENV["X"], ENV["X"] || d, ENV.fetch("X", d) and ENV.fetch("X") { d }, each with .to_i, .to_s or Integer(); '
    "comments <%# %>. No other Ruby is run: read the value from an environment variable, or give the Python worker a "
    "file of its own"
)

_TAG = re.compile(
    r"""
    (?P<literal><%%)
    | (?P<indent>^[ \t]*)?<%-(?P<statement_trimmed>.*?)(?P<trim0>-)?%>(?(trim0)\n?)
    | <%(?P<kind>[=\#]?)(?P<body>.*?)(?P<trim>-)?%>(?(trim)\n?)
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>\d[\d_]*(?:\.\d+)?)
    | (?P<string>"(?:[^"\\]|\\["\\])*"|'(?:[^'\\]|\\['\\])*')
    | (?P<word>[A-Za-z_][A-Za-z_0-9]*)
    | (?P<mark>\|\||[\[\](){},.])
    )""",
    re.VERBOSE,
)
_CREDENTIALS = re.compile(r"(?<=://)[^\s\"']*@")
_LEADING_INTEGER = re.compile(r"\s*([+-]?\d+(?:_\d+)*)")
# Ruby's `Integer` would read a number that begins with 0 as an octal one.
_WHOLE_INTEGER = re.compile(r"\s*[+-]?(?:0|[1-9]\d*(?:_\d+)*)\s*", re.ASCII)


def render(text: str, environment: Mapping[str, str], *, source: str) -> str:
    """
    Replace the ERB in *text* by its values.

    Args:
        environment: The contents of `ENV`.
        source: The file's name, for messages.

    Raises:
        ConfigError: A tag contains anything but the forms above, or a variable without a default is not set.
    """
    pieces: list[str] = []
    end = 0
    for match in _TAG.finditer(text):
        pieces.append(text[end : match.start()])
        pieces.append(_replacement(match, text, environment, source))
        end = match.end()
    pieces.append(text[end:])
    rest = pieces[-1]
    if "<%" in rest:
        line = text.count("\n", 0, end + rest.index("<%")) + 1
        raise ConfigError(f"{source}, line {line}: this ERB tag is never closed with %>")
    return "".join(pieces)


def _replacement(match: re.Match[str], text: str, environment: Mapping[str, str], source: str) -> str:
    if match["literal"]:
        return "<%"
    if match["kind"] == "#":
        return ""
    line = text.count("\n", 0, match.start()) + 1
    place = f"{source}, line {line}"
    body = match["body"] if match["body"] is not None else match["statement_trimmed"]
    shown = _without_passwords(" ".join(body.split()))
    if match["kind"] == "=":
        try:
            return to_s(_Expression(body, environment, place).evaluate())
        except _UnsupportedError as refusal:
            if _is_in_yaml_comment(text, match.start()):
                return ""
            raise ConfigError(
                f"{place}: <%= {shown} %> uses Ruby that is not supported here ({_without_passwords(str(refusal))}). "
                f"Supported: {SUPPORTED}"
            ) from None
    is_comment = body.lstrip().startswith("#") and "\n" not in body.strip()
    if shown and not is_comment and not _is_in_yaml_comment(text, match.start()):
        raise ConfigError(f"{place}: <% {shown} %> is a Ruby statement. Supported: <%= %> with {SUPPORTED}")
    return ""


def _without_passwords(code: str) -> str:
    return _CREDENTIALS.sub("***@", code)


def _is_in_yaml_comment(text: str, position: int) -> bool:
    """Returns True if the tag is in a comment: Ruby would run it and discard the result, so we just discard it."""
    start = text.rfind("\n", 0, position) + 1
    return text[start:position].lstrip().startswith("#")


class _UnsupportedError(Exception):
    """The tag contains Ruby other than the forms above."""


class _Token(NamedTuple):
    kind: str
    text: str


class _Expression:
    """Parses and evaluates one `<%= %>` by recursive descent: alternatives of calls on values."""

    def __init__(self, body: str, environment: Mapping[str, str], place: str) -> None:
        self._tokens = _tokens(body)
        self._environment = environment
        self._place = place
        # False while parsing an unused right side of `||` or an unused default: a missing variable is no error there.
        self._counts = True

    def evaluate(self) -> Value:
        value = self._alternatives()
        if self._tokens:
            raise _UnsupportedError(f"{self._tokens[0].text!r} is unexpected")
        return value

    def _alternatives(self) -> Value:
        value = self._calls()
        while self._take("||"):
            is_decided = value is not None and value is not False
            other = self._skipped_if(is_decided, self._calls)
            value = value if is_decided else other
        return value

    def _calls(self) -> Value:
        value = self._primary()
        while self._take("."):
            method = self._next("word")
            if method == "to_i":
                value = _to_i(value)
            elif method == "to_s":
                value = to_s(value)
            else:
                raise _UnsupportedError(f".{method}")
            if self._take("("):
                self._expect(")")
        return value

    def _primary(self) -> Value:
        if self._take("("):
            value = self._alternatives()
            self._expect(")")
            return value
        if not self._tokens:
            raise _UnsupportedError("a value is missing")
        token = self._tokens.pop(0)
        if token.kind == "number":
            digits = token.text.replace("_", "")
            return float(digits) if "." in digits else int(digits)
        if token.kind == "string":
            return _unquoted(token.text)
        constants: dict[str, Value] = {"nil": None, "true": True, "false": False}
        if token.text in constants:
            return constants[token.text]
        if token.text == "ENV":
            return self._environment_value()
        if token.text == "Integer":
            self._expect("(")
            value = self._alternatives()
            self._expect(")")
            return self._integer(value)
        raise _UnsupportedError(repr(token.text))

    def _environment_value(self) -> Value:
        if self._take("["):
            name = _unquoted(self._next("string"))
            self._expect("]")
            return self._environment.get(name)
        self._expect(".")
        if (method := self._next("word")) != "fetch":
            raise _UnsupportedError(f"ENV.{method}")
        self._expect("(")
        name = _unquoted(self._next("string"))
        found = self._environment.get(name)
        has_default, default = False, None
        if self._take(","):
            has_default, default = True, self._skipped_if(found is not None, self._alternatives)
        self._expect(")")
        if self._take("{"):
            has_default, default = True, self._skipped_if(found is not None, self._alternatives)
            self._expect("}")
        if found is None and not has_default and self._counts:
            raise ConfigError(f'{self._place}: {name} is not set; set it, or add a default: ENV.fetch("{name}", d)')
        return found if found is not None else default

    def _integer(self, value: Value) -> Value:
        if isinstance(value, str) and _WHOLE_INTEGER.fullmatch(value):
            return int(value)
        if self._counts and type(value) not in (int, float):
            raise ConfigError(f"{self._place}: Integer({value!r}) is not a whole number; set the variable to one")
        return _to_i(value) if self._counts else 0

    def _skipped_if(self, is_skipped: bool, read: Callable[[], Value]) -> Value:
        counted, self._counts = self._counts, self._counts and not is_skipped
        try:
            return read()
        finally:
            self._counts = counted

    def _take(self, mark: str) -> bool:
        if self._tokens and self._tokens[0].kind == "mark" and self._tokens[0].text == mark:
            del self._tokens[0]
            return True
        return False

    def _expect(self, mark: str) -> None:
        if not self._take(mark):
            found = self._tokens[0].text if self._tokens else "the end"
            raise _UnsupportedError(f"{found!r} where {mark!r} was expected")

    def _next(self, kind: str) -> str:
        if not self._tokens or self._tokens[0].kind != kind:
            found = self._tokens[0].text if self._tokens else "the end"
            raise _UnsupportedError(f"{found!r} where a {kind} was expected")
        return self._tokens.pop(0).text


def _tokens(body: str) -> list[_Token]:
    tokens: list[_Token] = []
    position, end = 0, len(body.rstrip())
    while position < end:
        match = _TOKEN.match(body, position)
        if match is None:
            raise _UnsupportedError(f"at {body[position:].strip()!r}")
        kind = match.lastgroup or ""
        tokens.append(_Token(kind, match[kind]))
        position = match.end()
    return tokens


def _unquoted(literal: str) -> str:
    if literal[0] == '"' and "#{" in literal:
        raise _UnsupportedError("a string with #{}")
    return re.sub(r"\\(.)", r"\1", literal[1:-1])


def _to_i(value: Value) -> int:
    """Convert as Ruby's `to_i` does: the integer at the start of a string, 0 if there is none."""
    if isinstance(value, str):
        match = _LEADING_INTEGER.match(value)
        return int(match[1].replace("_", "")) if match else 0
    if isinstance(value, bool):
        raise _UnsupportedError(f"{to_s(value)}.to_i")
    return int(value or 0)
