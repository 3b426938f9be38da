"""The option `--address HOST=IP`, for addresses that a capture does not show."""

import click

address_option = click.option(
    "--address",
    "addresses",
    multiple=True,
    metavar="HOST=IP",
    help="An address of a host that its capture does not show; may be given again.",
)
