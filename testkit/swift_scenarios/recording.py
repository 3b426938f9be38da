"""What OpenStack Swift 2.30.1 answered, kept in a file, one line an exchange, and held against others' answers."""

import dataclasses
import json
from pathlib import Path

from testkit.swift_scenarios.site import Exchange

FILE = Path(__file__).resolve().parents[2] / "tests" / "golden" / "swift-2.30.1.jsonl"


@dataclasses.dataclass(frozen=True)
class Disagreement:
    """An exchange in which two stores differ."""

    area: str
    wanted: Exchange
    got: Exchange

    @property
    def parts(self) -> list[str]:
        """What differs, each as `what: wanted → got`."""
        wanted, got = self.wanted, self.got
        found = [] if wanted.status == got.status else [f"status: {wanted.status} → {got.status}"]
        for name in sorted(wanted.headers.keys() | got.headers.keys()):
            values = wanted.headers.get(name, "(none)"), got.headers.get(name, "(none)")
            if values[0] != values[1]:
                found.append(f"{name}: {values[0]} → {values[1]}")
        if wanted.body != got.body:
            found.append(f"body: {wanted.body!r} → {got.body!r}")
        return found


def save(answers: dict[str, list[Exchange]], file: Path = FILE) -> None:
    """Keep a recording."""
    lines = [
        json.dumps({"area": area} | dataclasses.asdict(exchange), ensure_ascii=False)
        for area, exchanges in answers.items()
        for exchange in exchanges
    ]
    file.write_text("\n".join(lines) + "\n", "utf-8", "surrogateescape")


def load(file: Path = FILE) -> dict[str, list[Exchange]]:
    """The recording, by area."""
    answers: dict[str, list[Exchange]] = {}
    for line in file.read_text("utf-8").splitlines():
        fields = json.loads(line)
        answers.setdefault(fields.pop("area"), []).append(Exchange(**fields))
    return answers


def disagreements(area: str, wanted: list[Exchange], got: list[Exchange]) -> list[Disagreement]:
    """The exchanges that differ, where the same requests were sent to both stores."""
    pairs = zip(wanted, got, strict=True)
    return [Disagreement(area, *pair) for pair in pairs if pair[0] != pair[1]]
