"""What a running broker takes over of a configuration that was read again, and what has to wait."""

from config import BrokerConfig, load, plan_reload, with_dynamic


def loaded(**settings: str) -> BrokerConfig:
    return load(command_line={name.replace("_", "."): text for name, text in settings.items()})


def test_what_may_change_at_run_time_changes_and_the_rest_is_named() -> None:
    given = loaded(log_retention_ms="1000", num_partitions="2", log_segment_bytes="2000000")
    fresh = loaded(log_retention_ms="2000", num_partitions="3", log_cleanup_policy="compact")
    plan = plan_reload(given, given, fresh)
    assert set(plan.changed) == {"log.retention.ms", "log.segment.bytes", "log.cleanup.policy"}
    assert plan.needs_restart == ("num.partitions",)
    now = with_dynamic(plan.config, {})
    assert (now.text_of("log.retention.ms"), now.text_of("log.segment.bytes")) == ("2000", None)
    assert now.num_partitions == 2


def test_what_needs_a_restart_is_named_at_each_reload_and_what_was_reloaded_once() -> None:
    given = loaded(log_retention_ms="1000", num_partitions="2")
    fresh = loaded(log_retention_ms="2000", num_partitions="3")
    first = plan_reload(given, given, fresh)
    second = plan_reload(with_dynamic(first.config, {}), given, fresh)
    assert (second.changed, second.needs_restart) == ((), ("num.partitions",))


def test_the_metrics_port_that_was_taken_is_no_change() -> None:
    given = loaded(metrics_listener="127.0.0.1:0")
    running = given.with_metrics_port(1234)
    plan = plan_reload(running, given, given)
    assert (plan.changed, plan.needs_restart) == ((), ())
    assert with_dynamic(plan.config, {}).text_of("metrics.listener") == "127.0.0.1:1234"
