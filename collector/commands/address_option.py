"""The option `--address HOST=IP`, for addresses that a capture does not show."""

import click

address_option = click.option(
    "--address",
    "addresses",
    multiple=True,
    metavar="HOST=IP",
    help="An address of a host, where its capture does not show it; may be given again.",
)
