"""``tidelog spark JOB``: the data pipeline's jobs; `pipeline.launch` reads the rest of the line."""

import click


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    add_help_option=False,
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(*, arguments: tuple[str, ...]) -> int:
    """Run a job between topics and lakes (needs the extra: pip install 'tidelog[spark]')."""
    from pipeline.launch import main

    return main(list(arguments))
