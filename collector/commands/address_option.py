"""The option `--address HOST=IP`, by which an operator says what a capture does not show."""

import click

address_option = click.option(
    "--address",
    "addresses",
    multiple=True,
    metavar="HOST=IP",
    help="An address of a host, where its capture does not show it; may be given again.",
)
