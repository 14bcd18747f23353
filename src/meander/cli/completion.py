"""`meander completion`: a script that completes commands and options in your shell.

It is made from the commands' own parsers, so it is never behind them.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from meander.cli.main import OK, build_parser, commands

BASH = """\
_meander() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" words="" options=""
  if [ "$COMP_CWORD" = 1 ]; then
    COMPREPLY=($(compgen -W "{names} --help --version" -- "$word"))
    return
  fi
  case "${{COMP_WORDS[1]}} ${{COMP_WORDS[2]}} " in
{cases}
  esac
  case "$COMP_CWORD $word" in
    *" -"*) COMPREPLY=($(compgen -W "$options" -- "$word")) ;;
    "2 "*) COMPREPLY=($(compgen -W "$words" -- "$word")) ;;
  esac
  [ -n "$COMPREPLY" ] || COMPREPLY=($(compgen -f -- "$word"))
}}
complete -o filenames -F _meander meander
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `meander completion`."""
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="which one you use")
    parser.epilog = (
        "Once, and again after an upgrade. bash: meander completion bash > "
        "~/.local/share/bash-completion/completions/meander; zsh: meander completion zsh > "
        "~/.meander.zsh, and `source ~/.meander.zsh` in ~/.zshrc; fish: meander completion fish > "
        "~/.config/fish/completions/meander.fish"
    )


class Offer(NamedTuple):
    """What may follow a command."""

    words: list[str]
    """Commands of its own, or what its first argument can be."""
    options: list[str]


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    helps = {command.name: command.help for command in commands()}
    offers = {name: offer for command in helps for name, offer in offers_of(command).items()}
    if args.shell == "fish":
        print(fish(helps, offers))
    else:
        start = "autoload -U +X bashcompinit && bashcompinit\n" if args.shell == "zsh" else ""
        print(start + bash(list(helps), offers), end="")
    return OK


def offers_of(*command: str) -> dict[str, Offer]:
    """List what may follow a command, and each of those within it; the innermost first."""
    row: argparse.ArgumentParser = build_parser(command)
    found, words = dict[str, Offer](), list[str]()
    for name in command:
        row = _commands_in(row)[name]
    for word in _commands_in(row):
        words.append(word)
        found |= offers_of(*command, word)
    for action in row._actions:
        if not action.option_strings and not words:
            words += action.choices or ()
    options = sorted({o for a in row._actions for o in a.option_strings if o[:2] == "--"})
    return {**found, " ".join(command): Offer(words, options)}


def _commands_in(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def bash(names: Sequence[str], offers: Mapping[str, Offer]) -> str:
    """Write it for bash, and for zsh, which understands that too."""
    cases = "\n".join(
        f'    "{name} "*) words="{" ".join(words)}" options="{" ".join(options)}" ;;'
        for name, (words, options) in offers.items()
    )
    return BASH.format(names=" ".join(names), cases=cases)


def fish(helps: Mapping[str, str], offers: Mapping[str, Offer]) -> str:
    """Write it for fish."""
    lines = [
        f"complete -c meander -n __fish_use_subcommand -a {name} -d '{_quoted(text)}'"
        for name, text in helps.items()
    ]
    for name, (words, options) in offers.items():
        seen = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in name.split())
        if words:
            lines.append(f"complete -c meander -n '{seen}' -a '{' '.join(words)}'")
        lines += [f"complete -c meander -n '{seen}' -l {option[2:]}" for option in options]
    return "\n".join(lines)


def _quoted(text: str) -> str:
    return text.replace("'", "\\'")
