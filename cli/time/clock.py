"""``tidelog clock``: set the clock of a broker that runs with ``--clock settable``, for tests."""

import re
from typing import Any, Final

import click

from cli.broker_options import DURATION, BrokerOptions, TimeType, ask_admin
from cli.options import now_ms
from cli.time.options import metrics_options, print_document
from client.admin import Admin
from client.times import format_duration, format_time, parse_time
from values.limits import CLOCK_STEP_MAX_MS
from values.words import format_count


def _checked(text: str) -> str:
    """The text of a time itself: its relative forms count from the broker's clock."""
    parse_time(text, now_ms=now_ms())
    return text


_WHEN = TimeType("TIME", _checked)
_NEGATIVE: Final = re.compile(r"-\d")


class _MayBeNegative(click.Command):
    """A command whose argument may begin as ``-1h`` does, which click takes for options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put such words after all others, where they are arguments."""
        negative = [word for word in args if _NEGATIVE.match(word)]
        if negative and "--" not in args:
            args = [*(word for word in args if word not in negative), "--", *negative]
        return super().parse_args(ctx, args)


@click.group()
def command() -> None:
    """Set the clock of a broker for tests, started with 'serve --clock settable'.

    LogAppendTime, retention, compaction, the expiry of groups, producer ids and transactions
    follow it; see tidelog docs time. Each command returns when what fell due has run.
    """


@command.command()
@metrics_options
def show(**options: Any) -> None:
    """Show where the clock stands and how fast it runs."""
    _run(**options)


@command.command(cls=_MayBeNegative)
@click.argument("when", type=_WHEN, required=False)
@metrics_options
def freeze(*, when: str | None, **options: Any) -> None:
    """Stop the clock, where it stands or at a TIME.

    Example: tidelog clock freeze 2026-01-01T00:00Z
    """
    _run(rate=0, when=when, **options)


@command.command(
    name="set", cls=_MayBeNegative, short_help="Advance to a time, or jump back to it."
)
@click.argument("when", type=_WHEN)
@metrics_options
def set_clock(*, when: str, **options: Any) -> None:
    """Advance to a TIME, or jump back to it; +8d and the like count from the broker's clock."""
    _run(when=when, **options)


@command.command(cls=_MayBeNegative)
@click.argument("duration_ms", metavar="DURATION", type=DURATION)
@metrics_options
def advance(*, duration_ms: int, **options: Any) -> None:
    """Let a DURATION pass, such as 8d or 1h30m."""
    if duration_ms < 0:
        raise click.UsageError("time that has passed is not negative; 'jump' moves a clock back")
    _check_step(duration_ms)
    _run(advance_ms=duration_ms, **options)


@command.command(cls=_MayBeNegative, short_help="Move the wall clock alone.")
@click.argument("duration_ms", metavar="DURATION", type=DURATION)
@metrics_options
def jump(*, duration_ms: int, **options: Any) -> None:
    """Move the wall clock alone, as a clock that is set wrong does; -8d moves it back.

    The broker distrusts a jump ahead and deletes nothing by it for log.clock.trust.delay.ms.
    """
    _check_step(duration_ms)
    _run(jump_ms=duration_ms, **options)


@command.command()
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True, max=1_000_000),
    default=1.0,
    show_default=True,
    help="How fast, as a multiple of real time.",
)
@metrics_options
def resume(*, rate: float, **options: Any) -> None:
    """Let the clock run again from where it stands."""
    _run(rate=rate, **options)


def _check_step(duration_ms: int) -> None:
    if abs(duration_ms) > CLOCK_STEP_MAX_MS:
        raise click.UsageError(
            f"{format_duration(duration_ms)} is too far for one step: a clock moves by at most "
            f"{format_duration(CLOCK_STEP_MAX_MS)} (ten years) at once; take several steps"
        )


def _run(
    *,
    broker: BrokerOptions,
    metrics_url: str | None,
    as_json: bool,
    when: str | None = None,
    **changes: float,
) -> None:

    async def ask(admin: Admin) -> dict[str, Any]:
        if when is not None:
            here_ms = (await admin.clock(metrics_url=metrics_url))["wall_ms"]
            changes["set_ms"] = parse_time(when, now_ms=here_ms)
        return await admin.clock(changes, metrics_url=metrics_url)

    reading = ask_admin(broker, ask)
    if as_json:
        print_document(reading)
        return
    rate = reading["rate"]
    speed = "frozen" if rate == 0 else "running" if rate == 1 else f"running at {rate:g} times"
    click.echo(f"{format_time(reading['wall_ms'])} ({reading['wall_ms']}), {speed}")
    if "fired" in reading:
        click.echo(
            f"{format_count(reading['fired'], 'job')} ran: "
            f"{format_count(reading['segments_deleted'], 'segment')} deleted, "
            f"{format_count(reading['groups_expired'], 'group')} expired"
        )
