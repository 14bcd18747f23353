"""`meander completion`: a script that completes commands and options in your shell.

It is made from the commands' own parsers, so it is never behind them.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

from meander.cli.main import OK, build_parser, commands

BASH = """\
_meander() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" options=""
  if [ "$COMP_CWORD" = 1 ]; then
    COMPREPLY=($(compgen -W "{names} --help --version" -- "$word"))
    return
  fi
  case "${{COMP_WORDS[1]}}" in
{cases}
  esac
  case "$word" in
    -*) COMPREPLY=($(compgen -W "$options" -- "$word")) ;;
    *) COMPREPLY=($(compgen -f -- "$word")) ;;
  esac
}}
complete -o filenames -F _meander meander
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `meander completion`."""
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="which one you use")
    parser.epilog = (
        'bash: eval "$(meander completion bash)" in ~/.bashrc; zsh: the same with zsh in ~/.zshrc; '
        "fish: meander completion fish > ~/.config/fish/completions/meander.fish"
    )


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    helps = {command.name: command.help for command in commands()}
    options = {name: options_of(name) for name in helps}
    if args.shell == "fish":
        print(fish(helps, options))
    else:
        start = "autoload -U +X bashcompinit && bashcompinit\n" if args.shell == "zsh" else ""
        print(start + bash(options), end="")
    return OK


def options_of(command: str) -> list[str]:
    """List the long options of a command."""
    parser = build_parser([command])
    (rows,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    row = rows.choices[command]
    return sorted({o for action in row._actions for o in action.option_strings if o[:2] == "--"})


def bash(options: Mapping[str, Sequence[str]]) -> str:
    """Write it for bash, and for zsh, which understands that too."""
    cases = "\n".join(f'    {name}) options="{" ".join(o)}" ;;' for name, o in options.items())
    return BASH.format(names=" ".join(options), cases=cases)


def fish(helps: Mapping[str, str], options: Mapping[str, Sequence[str]]) -> str:
    """Write it for fish."""
    lines = [
        f"complete -c meander -n __fish_use_subcommand -a {name} -d '{_quoted(text)}'"
        for name, text in helps.items()
    ]
    lines += [
        f"complete -c meander -n '__fish_seen_subcommand_from {name}' -l {option[2:]}"
        for name, found in options.items()
        for option in found
    ]
    return "\n".join(lines)


def _quoted(text: str) -> str:
    return text.replace("'", "\\'")
