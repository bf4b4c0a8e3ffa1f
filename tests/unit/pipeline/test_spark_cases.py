"""Spark's own cases for its Kafka source, and where each of them stands for ours.

The names are those of the suites of Spark's `connector/kafka-0-10-sql`. The tests need Spark and a
Java (`make spark-test`); that they exist, and under these names, is checked wherever tests run.
"""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3] / "tests"
RELATION = "pipeline/test_relation.py"
STREAM = "pipeline/test_micro_batch.py"
READER = "pipeline/test_offset_reader.py"
SINK = "pipeline/test_sink.py"
SPLITS = "unit/pipeline/plan/test_splits.py"
OPTIONS = "unit/pipeline/options/test_options.py"

CASES: dict[str, dict[str, tuple[str, str]]] = {
    "KafkaRelationSuite": {
        "explicit earliest to latest offsets": (
            RELATION,
            "test_explicit_earliest_to_latest_offsets",
        ),
        "default starting and ending offsets": (
            RELATION,
            "test_default_starting_and_ending_offsets",
        ),
        "default starting and ending offsets with headers": (
            RELATION,
            "test_default_starting_and_ending_offsets_with_headers",
        ),
        "explicit offsets": (RELATION, "test_explicit_offsets"),
        "topic-level offsets": (RELATION, "test_a_topic_can_be_given_a_place_as_a_whole"),
        "timestamp provided for starting and ending": (
            RELATION,
            "test_timestamp_provided_for_starting_and_ending",
        ),
        "timestamp provided for starting, offset provided for ending": (
            RELATION,
            "test_timestamp_provided_for_starting_offset_provided_for_ending",
        ),
        "timestamp provided for ending, offset provided for starting": (
            RELATION,
            "test_timestamp_provided_for_ending_offset_provided_for_starting",
        ),
        "timestamp provided for starting, ending not provided": (
            RELATION,
            "test_timestamp_provided_for_starting_ending_not_provided",
        ),
        "timestamp provided for ending, starting not provided": (
            RELATION,
            "test_timestamp_provided_for_ending_starting_not_provided",
        ),
        "global timestamp provided for starting and ending": (
            RELATION,
            "test_global_timestamp_provided_for_starting_and_ending",
        ),
        "no matched offset for timestamp - startingOffsets": (
            RELATION,
            "test_no_matched_offset_for_timestamp_starting_offsets",
        ),
        "no matched offset for timestamp - endingOffsets": (
            RELATION,
            "test_no_matched_offset_for_timestamp_ending_offsets",
        ),
        "preferences on offset related options": (
            RELATION,
            "test_preferences_on_offset_related_options",
        ),
        "reuse same dataframe in query": (RELATION, "test_reuse_same_dataframe_in_query"),
        "test late binding start offsets": (RELATION, "test_late_binding_start_offsets"),
        "bad batch query options": (RELATION, "test_bad_batch_query_options"),
        "read Kafka transactional messages: read_committed": (
            RELATION,
            "test_read_kafka_transactional_messages_read_committed",
        ),
        "read Kafka transactional messages: read_uncommitted": (
            RELATION,
            "test_read_kafka_transactional_messages_read_committed",
        ),
        "SPARK-30656: minPartitions": (RELATION, "test_spark_30656_min_partitions"),
        "topic-partition for start and end must match": (
            RELATION,
            "test_topic_partition_for_start_and_end_must_match",
        ),
        "unresolved start offset greater than end offset": (
            RELATION,
            "test_unresolved_start_offset_greater_than_end_offset",
        ),
        "resolved start offset greater than end offset": (
            RELATION,
            "test_resolved_start_offset_greater_than_end_offset",
        ),
    },
    "KafkaMicroBatchSourceSuite": {
        "{assign, subscribe by name, by pattern} from {latest, earliest, specific offsets, "
        "specific timestamps, global timestamp} (failOnDataLoss: {true, false})": (
            STREAM,
            "test_start_of_a_stream",
        ),
        "from {specific timestamps, global timestamp} with non-matching starting offset, {error, "
        "latest}": (STREAM, "test_non_matching_starting_offset"),
        "Trigger.AvailableNow": (STREAM, "test_available_now_takes_what_was_there_at_its_start"),
        "Trigger.AvailableNow, partitions got lost, or offsets got lowered, during processing": (
            STREAM,
            "test_available_now_with_partitions_that_got_lost_or_lowered",
        ),
        "SPARK-53560: no crash looping during uncommitted batch retry": (
            STREAM,
            "test_spark_53560_a_batch_that_was_not_committed_is_repeated_by_available_now",
        ),
        "maxOffsetsPerTrigger": (STREAM, "test_max_offsets_per_trigger_is_shared_out"),
        "minOffsetsPerTrigger": (
            STREAM,
            "test_min_offsets_per_trigger_waits_for_so_many_or_for_its_delay",
        ),
        "compositeReadLimit": (
            STREAM,
            "test_composite_read_limit_at_least_so_many_and_at_most_so_many",
        ),
        "SPARK-26718 rate limit set to Long.Max": (
            STREAM,
            "test_spark_26718_a_limit_of_long_max",
        ),
        "SPARK-41375: empty partitions": (
            STREAM,
            "test_spark_41375_empty_partitions_are_in_the_offset",
        ),
        "delete a topic when a Spark job is running, and recreate it": (
            STREAM,
            "test_a_topic_made_again_between_batches",
        ),
        "subtract: partition's offset was changed from 2 to 1": (
            STREAM,
            "test_an_end_that_went_back_is_data_loss",
        ),
        "KafkaSource with watermark": (STREAM, "test_source_with_watermark"),
        "SPARK-22956: currentPartitionOffsets should be set when no new data comes in": (
            STREAM,
            "test_spark_22956_two_sources_of_which_one_has_nothing_new",
        ),
        "SPARK-25495: reset of fetched data": (
            STREAM,
            "test_spark_25495_committed_records_after_an_aborted_transaction",
        ),
        "SPARK-27494: read Kafka record containing null key/values": (
            RELATION,
            "test_spark_27494_null_keys_and_values",
        ),
        "SPARK-56243: malformed record timestamp": (
            RELATION,
            "test_spark_56243_malformed_timestamps",
        ),
        "Kafka column types": (RELATION, "test_kafka_column_types"),
        "stress test with multiple topics and partitions": (
            STREAM,
            "test_stress_random_rows_partitions_limits_and_restarts",
        ),
    },
    "KafkaOffsetReaderSuite": {
        "isolationLevel {default, read_uncommitted, read_committed, by any case}": (
            READER,
            "test_isolation_level_decides_where_latest_is",
        ),
        "getOffsetRangesFromUnresolvedOffsets - using specific offsets": (
            READER,
            "test_ranges_from_unresolved_offsets_that_are_specific",
        ),
        "getOffsetRangesFromUnresolvedOffsets - using special offsets": (
            READER,
            "test_ranges_from_unresolved_offsets_that_are_special",
        ),
        "getOffsetRangesFromUnresolvedOffsets - multiple topic partitions": (
            READER,
            "test_ranges_of_several_topic_partitions_are_cut_to_min_partitions",
        ),
        "getOffsetRangesFromResolvedOffsets": (
            READER,
            "test_ranges_from_resolved_offsets_are_those_offsets",
        ),
        "KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED": (
            READER,
            "test_times_that_do_not_match_the_assignment",
        ),
    },
    "KafkaOffsetRangeCalculatorSuite": {
        "with minPartitions = 1": (
            SPLITS,
            "test_min_partitions_below_the_number_of_ranges_changes_nothing",
        ),
        "with minPartitions = 4": (SPLITS, "test_min_partitions_cuts_one_range_evenly"),
        "SPARK-28489: never drop offsets": (
            SPLITS,
            "test_min_partitions_leaves_small_ranges_whole",
        ),
        "SPARK-36576: minPartitions is a minimum": (SPLITS, "test_min_partitions_may_round_up"),
        "empty ranges ignored": (SPLITS, "test_empty_ranges_become_no_task"),
        "maxRecordsPerPartition": (SPLITS, "test_max_records_bounds_every_task"),
    },
    "KafkaDontFailOnDataLossSuite": {
        "failOnDataLoss=false should not return duplicated records: batch": (
            RELATION,
            "test_fail_on_data_loss_false_returns_what_is_there_and_nothing_twice",
        ),
        "failOnDataLoss=false should not return duplicated records: microbatch": (
            STREAM,
            "test_a_stream_without_fail_on_data_loss_returns_nothing_twice",
        ),
    },
    "KafkaSinkSuite": {
        "batch - write to Kafka, topic column and topic option": (
            SINK,
            "test_topic_column_and_option",
        ),
        "batch - partition column": (SINK, "test_time_key_headers_and_partition_are_kept"),
        "batch - partition column vs default Kafka partitioner": (
            SINK,
            "test_a_row_without_partition_goes_by_its_key",
        ),
        "write data with bad schema, valid or wrong data types": (
            SINK,
            "test_columns_that_are_no_record_are_refused_before_any_task",
        ),
        "batch - unsupported save modes": (SINK, "test_overwrite_is_refused"),
        "streaming - write to non-existing options": (
            OPTIONS,
            "test_a_bad_option_is_answered_with_its_cure",
        ),
    },
}


def functions_of(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("suite", CASES)
def test_every_case_of_sparks_suites_stands_here_too(suite: str) -> None:
    missing = [
        f"{case}: {file}::{name}"
        for case, (file, name) in CASES[suite].items()
        if name not in functions_of(file)
    ]
    assert missing == []
