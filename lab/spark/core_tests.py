"""The core of the Spark tests: what `./run test --spark X.Y` runs on another Spark than the locked one."""

from __future__ import annotations

#: By file: exactness, restarts, punctuations, groups, several streams, sinks, Kafka. Functions, with all parameters.
CORE = {
    "spark/test_join.py": (
        "test_a_query_that_starts_again_after_every_batch_gives_the_batch_join",
        "test_static_inputs_give_the_batch_join_by_the_same_call",
        "test_a_half_open_window_leaves_its_edge_out",
        "test_all_types_survive_in_any_time_zone",
        "test_columns_may_be_called_what_they_like",
        "test_the_time_may_be_the_key",
        "test_inputs_without_rows_have_no_results",
        "test_the_hash_is_sparks_own",
    ),
    "spark/test_punctuations.py": (
        "test_static_streams_give_what_sql_gives",
        "test_restarts_between_all_batches_change_nothing",
        "test_a_lie_is_set_apart_or_stops_the_query",
        "test_silence_and_ends_that_are_missing",
    ),
    "spark/test_group_by.py": (
        "test_final_groups_over_restarts",
        "test_groups_by_another_column_come_from_a_second_operator",
        "test_groups_go_to_a_sink_and_all_come_when_one_stream_has_ended",
    ),
    "spark/test_multiway.py": (
        "test_three_streams_restarts_late_rows_and_the_order",
        "test_static_streams_a_where_and_groups",
        "test_windows_of_rows_and_of_time",
    ),
    "spark/test_tree.py": ("test_a_tree_of_joins_is_exact_and_evicts_what_its_inputs_close",),
    "spark/test_wo_join.py": ("test_nothing_is_lost_over_a_restart_and_little_is_kept",),
    "spark/test_where.py": ("test_a_left_join_asks_its_predicate_before_a_row_counts_as_matched",),
    "spark/test_sql.py": ("test_groups_come_once_when_their_item_is_closed",),
    "spark/test_asof.py": ("test_a_query_that_starts_again_after_every_batch",),
    "spark/test_theta.py": ("test_the_same_results_over_restarts_and_late_rows_once",),
    "spark/test_bad_input.py": ("test_nan_nulls_zeros_and_the_first_and_last_instant",),
    "spark/test_monitor.py": ("test_all_outputs_say_what_the_progress_says",),
    "spark/test_write.py": (
        "test_results_and_late_rows_go_to_a_sink_each_and_a_batch_is_computed_once",
        "test_folders_hold_each_batch_once_whatever_happens",
        "test_an_error_of_ours_comes_out_of_a_failed_query",
        "test_two_joins_in_one_query_are_counted_each",
    ),
    "spark/test_spark_versions.py": ("test_the_state_can_be_read_or_is_refused_by_name", "test_a_limited_source"),
    "kafka/test_end_to_end.py": ("test_from_kafka_to_kafka_with_a_restart",),
}
#: Those of the core that join static DataFrames and do nothing else: skipped on Spark 4.0, which refuses such joins.
#: Tests that compare streams with a static join leave that comparison out by themselves (`joins_static`).
STATIC_JOINS = {
    "test_static_inputs_give_the_batch_join_by_the_same_call",
    "test_a_half_open_window_leaves_its_edge_out",
    "test_columns_may_be_called_what_they_like",
    "test_the_time_may_be_the_key",
    "test_inputs_without_rows_have_no_results",
    "test_static_streams_give_what_sql_gives",
    "test_static_streams_a_where_and_groups",
}
