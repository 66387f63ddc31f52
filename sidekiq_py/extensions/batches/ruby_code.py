"""The Ruby support file, with the Lua scripts of both languages inserted."""

from sidekiq_py.extensions.batches.steps import FOLDER, LIBRARY


def text() -> str:
    """The text of the support file."""
    code = (FOLDER.parent / "ruby" / "batches.rb").read_text("utf-8")
    scripts = {name: (FOLDER / f"{name}.lua").read_text("utf-8") for name in ("step", "ruby_push", "ruby_end")}
    for name, script in {"library": LIBRARY, **scripts}.items():
        code = code.replace(f"@@{name}@@\n", script)
    return code
