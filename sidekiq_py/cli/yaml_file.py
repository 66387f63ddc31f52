"""
Reads `config/sidekiq.yml` as Ruby does: ERB first, then YAML with symbols, then the section of the environment.

A key may be written `:concurrency:` or `concurrency:`, a value `:critical` or `critical`; both mean the same here. The
result is a dict of unchecked options, which `settings.py` turns into a `Config`. Source: Sidekiq 6.4.1 and 8.1.7,
cli.rb, `parse_config`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from sidekiq_py.cli import erb
from sidekiq_py.errors import ConfigError

_SYMBOL = re.compile(r":.+", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Symbol:
    """A Ruby symbol. It is not a `str`, because `:a` and `a` may both be keys of one mapping."""

    name: str


class _RubyLoader(yaml.SafeLoader):
    """Loads YAML as Ruby's `safe_load` does with symbols and aliases allowed: no tag creates an object."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose a node. An anchor may be given again, as YAML allows; PyYAML refuses that."""
        if not self.check_event(yaml.AliasEvent):
            self.anchors.pop(self.peek_event().anchor, None)  # type: ignore[no-untyped-call]
        return super().compose_node(parent, index)


def read_options(path: Path, *, section: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """
    Read the options in a file.

    Args:
        section: The environment's name; the options in its section override the others.
        environment: The contents of `ENV` in the file's ERB.

    Raises:
        ConfigError: The file does not exist, or cannot be read as Ruby would read it.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"No such file {path}; -C names the YAML file with the worker's settings") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    return parse_options(erb.render(text, environment, source=str(path)), section=section, source=str(path))


def parse_options(text: str, *, section: str, source: str) -> dict[str, Any]:
    """Parse the options in *text*, whose ERB has been rendered; arguments as for `read_options`."""
    options = parse(text, source=source)
    if options is None or options is False:
        return {}
    if not isinstance(options, dict):
        raise ConfigError(
            f"{source} holds a value of type {type(options).__name__}; it must be a mapping of options to values"
        )
    own = options.pop(section, None)
    if own is not None and not isinstance(own, dict):
        raise ConfigError(f"{source}: {section} must hold options, as it is the name of the environment")
    options.update(own or {})
    # The order in which queues are served follows from their weights.
    options.pop("strict", None)
    return options


def parse(text: str, *, source: str) -> Any:
    """
    Parse YAML as Ruby does, with the names of symbols in their place.

    Args:
        source: The file's name, for messages.

    Raises:
        ConfigError: It cannot be parsed.
    """
    try:
        return _plain(yaml.load(text, Loader=_RubyLoader))
    except yaml.YAMLError as error:
        reason = getattr(error, "problem", None) or error
        raise ConfigError(f"{source}{_place_of(error)}: {reason}") from error
    except (ValueError, KeyError) as error:
        raise ConfigError(f"{source}: a value does not fit its tag: {error}; write it without the tag") from error
    except RecursionError:
        raise ConfigError(
            f"{source}: a value contains itself by an alias (*name), or is nested too deeply; write it without that"
        ) from None


def _plain(value: Any) -> Any:
    """Turn symbols into plain names, recursively."""
    if isinstance(value, dict):
        return {
            key.name if isinstance(key, _Symbol) else key: _plain(one)
            for key, one in value.items()
            # If a name occurs both ways, Ruby uses the plain key's value.
            if not isinstance(key, _Symbol) or key.name not in value
        }
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.name if isinstance(value, _Symbol) else value


def _symbol(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> _Symbol:
    text = str(node.value)[1:]
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        text = text[1:-1]
    return _Symbol(text)


def _text(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> str:
    return str(node.value)


def _refuse_date(loader: yaml.SafeLoader, node: yaml.Node) -> None:
    problem = "dates and times are not allowed here, and Ruby rejects them, too; write it in quotes"
    raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


def _refuse_tag(loader: yaml.SafeLoader, node: yaml.Node) -> None:
    problem = f"the tag {node.tag} would create an object; only plain values and symbols are allowed"
    raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


def _place_of(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    return f", line {mark.line + 1}" if mark is not None else ""


_RubyLoader.add_implicit_resolver("!symbol", _SYMBOL, [":"])
_RubyLoader.add_constructor("!symbol", _symbol)
_RubyLoader.add_constructor("tag:yaml.org,2002:timestamp", _refuse_date)
_RubyLoader.add_constructor("tag:yaml.org,2002:value", _text)
_RubyLoader.add_constructor(None, _refuse_tag)
