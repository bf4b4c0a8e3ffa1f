"""``tidelog completion``: the script by which a shell completes commands, options and names."""

import click
from click.shell_completion import get_completion_class

from cli.shell import COMPLETION_VARIABLE

SHELLS = ("bash", "zsh", "fish")

_HEAD = "#compdef tidelog\n"
_ZSH = _HEAD + "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }\n"
"""Many a .zshrc has not set up completion before: without it zsh knows no `compdef`."""


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def command(*, shell: str) -> None:
    """Print what completes commands, options, topics and groups.

    \b
    bash:  echo 'eval "$(tidelog completion bash)"' >> ~/.bashrc
    zsh:   echo 'eval "$(tidelog completion zsh)"' >> ~/.zshrc
    fish:  tidelog completion fish > ~/.config/fish/completions/tidelog.fish
    """
    found = get_completion_class(shell)
    assert found is not None
    root = click.get_current_context().find_root().command
    # Not source(): for bash it runs one first, to look at the version.
    completer = found(root, {}, "tidelog", COMPLETION_VARIABLE)
    script = completer.source_template % completer.source_vars()
    click.echo(_ZSH + script.removeprefix(_HEAD) if shell == "zsh" else script)
