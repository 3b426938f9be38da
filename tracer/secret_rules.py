"""The rules of secrets, which are overwritten with `x` in everything that is stored, printed or logged.

All parts use one rule set: `tracer/core/secrets/src/rules.txt`, and an operator's own file in the same format. The core
overwrites secrets in packets; this module has the current rules, and applies them to texts and command lines.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tracer._capture import Secrets
from tracer.errors import InputError

VARIABLE = "TWINTAP_SECRETS"
"""Names the operator's own file of rules."""


@dataclass(frozen=True, slots=True)
class SecretChoice:
    """The operator's options for secrets."""

    more: str = ""  # rules beside the built-in ones, in the form of rules.txt
    are_kept: bool = False  # nothing is overwritten


_chosen: list[SecretChoice] = []
"""At most one, in force for this process."""


def choice() -> SecretChoice:
    """What is in force: what was chosen, or what the environment says.

    Raises: `InputError` for an operator's file that cannot be read or understood.
    """
    if not _chosen:
        _chosen.append(SecretChoice(_operators_rules()))
    return _chosen[0]


def choose_file(file: Path) -> None:
    """From here on, here and in processes that this one starts, the rules of `file` are in force, too."""
    os.environ[VARIABLE] = str(file.resolve())
    _chosen.clear()


def choose(choice: SecretChoice) -> None:
    """From here on, in this process, these options are in force."""
    _chosen[:] = [choice]


def keep_secrets(wanted: bool = True) -> None:
    """From now on overwrite nothing, as the operator requested; with `wanted=False`, overwrite again."""
    _chosen[:] = [SecretChoice(are_kept=True)] if wanted else []


def rules(of: SecretChoice | None = None) -> Secrets:
    """The rules in force, or those of a choice.

    Raises: as `choice`.
    """
    return _build_rules(of or choice())


def options_in_force() -> tuple[str, ...]:
    """Words of a command line that keep secrets in another process, if they are kept; files go by the environment."""
    return ("--keep-secrets",) if choice().are_kept else ()


def without_secrets(text: str) -> str:
    """A text with its secrets overwritten; if the operator's rules cannot be read, by the built-in ones."""
    try:
        return rules().text(text)
    except InputError:
        return Secrets().text(text)


def argv_without_secrets(argv: Sequence[str]) -> tuple[str, ...]:
    """The words of a command line with their secrets overwritten."""
    return tuple(rules().words(list(argv)))


def _operators_rules() -> str:
    file = os.environ.get(VARIABLE, "")
    if not file:
        return ""
    try:
        return Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the rules of secrets in {file} cannot be read: {error}", "check the path") from None


@lru_cache(maxsize=8)
def _build_rules(of: SecretChoice) -> Secrets:
    try:
        return Secrets(of.more, nothing=of.are_kept)
    except ValueError as error:
        line, what = error.args
        where = os.environ.get(VARIABLE, "the trace's rules of secrets")
        raise InputError(f"{where}, line {line}: {what}", "write KIND TEXT, as docs/security.md says") from None
