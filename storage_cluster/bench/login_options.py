"""Options of commands that name a store instead of the one that a workload names: a Swift account, or an S3 store."""

import dataclasses
from collections.abc import Callable
from typing import Any

import click

from storage_cluster.bench.errors import WorkloadError
from storage_cluster.bench.model import StorageConfig
from storage_cluster.bench.storage.opening import Login
from storage_cluster.bench.storage.s3_options import NAMES, SECRETS, read_options
from storage_cluster.bench.storage.swift import Credentials

_OWN = ("endpoint", *SECRETS)
_OTHERS = tuple(name for name in NAMES if name not in (*_OWN, "timeout"))


@dataclasses.dataclass(frozen=True)
class StoreWords:
    """What a command line says of the store."""

    auth: str
    user: str
    key: str
    s3: str
    access_key: str
    secret_key: str
    storage: tuple[str, ...]

    def login(self) -> Login | None:
        """The store that stands in for the workload's; None if none is named. Raises: WorkloadError."""
        if self.auth and self.s3:
            raise WorkloadError("--auth and --s3 name two stores", "give one of them")
        if self.auth:
            return Login(Credentials(self.auth, self.user, self.key))
        if self.storage and not self.s3:
            raise WorkloadError("--storage is for --s3", "give --s3 URL, too; for a file change its [storage]")
        return Login(self._s3_store()) if self.s3 else None

    def as_submitted(self) -> dict[str, Any]:
        """The same as a controller takes it (`Submission`). Raises: WorkloadError."""
        login = self.login()
        if login is None:
            return {}
        if isinstance(login.credentials, StorageConfig):
            return {"s3": dict(login.credentials.options)}
        return {"auth": self.auth, "user": self.user, "key": self.key}

    def _s3_store(self) -> StorageConfig:
        options = {"endpoint": self.s3, "access_key": self.access_key, "secret_key": self.secret_key}
        for text in self.storage:
            name, equals, value = text.partition("=")
            if name not in _OTHERS or not equals:
                raise WorkloadError(
                    f"--storage {name} is no option of an S3 store", f"give one of {', '.join(_OTHERS)}"
                )
            options[name] = value
        found = StorageConfig("s3", tuple((name, value) for name, value in options.items() if value))
        read = read_options(found).credentials  # with those of the environment
        options |= {name: getattr(read, name) for name in SECRETS}
        return dataclasses.replace(found, options=tuple((name, value) for name, value in options.items() if value))


_OPTIONS = (
    click.option("--auth", default="", help="A store elsewhere: its v1 auth URL.  [default: FILE's; else the cluster]"),
    click.option("--user", default="test:tester", show_default=True, help="For --auth."),
    click.option("--key", default="testing", show_default=True, help="For --auth."),
    click.option("--s3", default="", metavar="URL", help="An S3 store elsewhere: its endpoint, http://HOST:PORT."),
    click.option("--access-key", default="", help="For --s3.  [default: AWS_ACCESS_KEY_ID]"),
    click.option("--secret-key", default="", help="For --s3.  [default: AWS_SECRET_ACCESS_KEY]"),
    click.option("--storage", multiple=True, metavar="OPTION=VALUE", help=f"For --s3: {', '.join(_OTHERS)}."),
)


def store_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options, as one argument `store`."""

    def with_store(**words: Any) -> None:
        names = [field.name for field in dataclasses.fields(StoreWords)]
        command(store=StoreWords(**{name: words.pop(name) for name in names}), **words)

    with_store.__doc__ = command.__doc__
    with_store.__name__ = command.__name__
    with_store.__click_params__ = getattr(command, "__click_params__", [])  # type: ignore[attr-defined]
    for option in reversed(_OPTIONS):
        with_store = option(with_store)
    return with_store
